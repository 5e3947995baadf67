#!/bin/sh
# Install a Debian package where we may, else say how; what needs it is then left out, and nothing fails.
# usage: install-package.sh PACKAGE WHAT-IS-LEFT-OUT-WITHOUT-IT
set -u
package=$1 without=$2

if [ "$(uname)" = Linux ] && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    echo "installing $package"
    DEBIAN_FRONTEND=noninteractive
    export DEBIAN_FRONTEND
    { apt-get update -qq && apt-get install -y -qq --no-install-recommends "$package"; } > /dev/null ||
        echo "could not install $package; going on without $without" >&2
else
    echo "going on without $without. To have them: sudo apt-get install -y $package" >&2
fi
