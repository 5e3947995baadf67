#!/bin/sh
# Make sure that simulators can render without a screen: install OSMesa where nothing can and we may, else say how.
# usage: install-graphics.sh PYTHON
set -u
python=$1

if library=$("$python" -m oat.sims.rendering); then
    echo "offscreen rendering: $library"
elif [ "$(uname)" = Linux ] && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    echo "installing libosmesa6 for offscreen rendering"
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends libosmesa6; } > /dev/null ||
        echo "could not install libosmesa6; going on without pictures from simulators" >&2
else
    echo "no offscreen rendering: going on without pictures from simulators. To have them: sudo apt-get install -y libosmesa6" >&2
fi
