#!/usr/bin/env bash
# Make the tokenizers that come with the package, in OUT, and put them into src/oat/tokenizers/ready_made_checkpoints.
# usage: make-tokenizers.sh OUT PUSHT [NAME…]      PUSHT is pusht_cchi_v7_replay.zarr
# They take one, two and three minutes of one core. Half the layers of the preset: a tokenizer may have 2 MB.
set -euo pipefail
pusht=$(realpath "$2")
target="$(realpath "$(dirname "$0")/..")/src/oat/tokenizers/ready_made_checkpoints"
mkdir -p "$1" "$target"
cd "$1"  # names without folders: they are recorded in the checkpoints
shift 2

fit() {
    rm -rf "${1:?}"
    oat fit --data "$2" --tokenizer oat --preset cpu --encoder-layers 1 --decoder-layers 1 --steps "$3" \
        --validate-every 500 --out "$1"
    rm -rf "${target:?}/$1"
    cp -r "$1/best" "$target/$1"
}

[ $# -gt 0 ] || set -- metaworld pusht robosuite
for name in "$@"; do
    case $name in
        metaworld)
            [ -d metaworld-demos ] || oat collect metaworld --tasks all --episodes 8 --out metaworld-demos
            fit metaworld metaworld-demos 2000 ;;
        pusht)
            ln -sfn "$pusht" pusht_cchi_v7_replay.zarr
            fit pusht pusht_cchi_v7_replay.zarr 400 ;;
        robosuite)
            [ -d robosuite-demos ] || oat collect robomimic --tasks lift can square --episodes 40 --out robosuite-demos
            fit robosuite robosuite-demos 1200 ;;
        *)
            echo "there is no tokenizer $name, only metaworld, pusht, robosuite" >&2
            exit 1 ;;
    esac
done
