#!/usr/bin/env bash
# Write uv.lock with the versions that constraints.txt pins; it needs uv (https://docs.astral.sh/uv) and the network.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/src/oat"
cp pyproject.toml README.md LICENSE "$folder/"
cp src/oat/__init__.py "$folder/src/oat/"
{
    echo 'constraint-dependencies = ['
    sed -nE 's/^([A-Za-z][A-Za-z0-9_.-]*==[^ #]+).*/    "\1",/p' constraints.txt
    echo ']'
} >> "$folder/pyproject.toml"
uv lock --quiet --project "$folder"
# A second time without the constraints: uv keeps the versions that a lock has.
cp "$folder/uv.lock" uv.lock
uv lock --quiet
