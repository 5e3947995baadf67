#!/usr/bin/env bash
# Make the tokenizers that come with the package, in OUT, and put them into src/oat/tokenizers/ready_made_checkpoints.
# usage: make-tokenizers.sh OUT PUSHT      PUSHT is pusht_cchi_v7_replay.zarr; a few minutes on an idle machine
set -euo pipefail
pusht=$(realpath "$2")
target="$(realpath "$(dirname "$0")/..")/src/oat/tokenizers/ready_made_checkpoints"
mkdir -p "$1" "$target"
cd "$1"  # names without folders: they are recorded in the checkpoints

fit() {
    rm -rf "${1:?}"
    oat fit --data "$2" --tokenizer oat --preset tiny --steps 400 --validate-every 200 --out "$1"
    rm -rf "${target:?}/$1"
    cp -r "$1/best" "$target/$1"
}

ln -sfn "$pusht" pusht_cchi_v7_replay.zarr
fit pusht pusht_cchi_v7_replay.zarr
[ -d metaworld-demos ] || oat collect metaworld --tasks all --episodes 2 --out metaworld-demos
fit metaworld metaworld-demos
