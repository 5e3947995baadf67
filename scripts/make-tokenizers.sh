#!/usr/bin/env bash
# Make the tokenizers that come with the package, in OUT, and put them into src/oat/tokenizers/ready_made_checkpoints.
# usage: make-tokenizers.sh OUT PUSHT      PUSHT is pusht_cchi_v7_replay.zarr; about ten minutes on an idle machine
set -euo pipefail
out=$1 pusht=$2
target="$(dirname "$0")/../src/oat/tokenizers/ready_made_checkpoints"

fit() {
    oat fit --data "$2" --tokenizer oat --preset tiny --steps 400 --validate-every 200 --out "$out/$1"
    rm -rf "${target:?}/$1"
    mkdir -p "$target"
    cp -r "$out/$1/best" "$target/$1"
}

fit pusht "$pusht"
oat collect metaworld --tasks all --episodes 2 --workers 1 --out "$out/metaworld-demos"
fit metaworld "$out/metaworld-demos"
