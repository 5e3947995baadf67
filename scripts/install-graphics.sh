#!/bin/sh
# Make sure that simulators can render without a screen: OSMesa is installed where nothing else can.
# usage: install-graphics.sh PYTHON
set -u

if library=$("$1" -m oat.sims.rendering); then
    echo "offscreen rendering: $library"
else
    "$(dirname "$0")"/install-package.sh libosmesa6 "pictures from simulators"
fi
