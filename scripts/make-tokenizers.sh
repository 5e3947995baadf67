#!/usr/bin/env bash
# Make the tokenizers that come with the package, in OUT, and put them into src/oat/tokenizers/ready_made_checkpoints.
# usage: make-tokenizers.sh OUT PUSHT [NAME…]      PUSHT is pusht_cchi_v7_replay.zarr
# They take three minutes (metaworld and pusht) and two minutes (robosuite) of one core.
set -euo pipefail
pusht=$(realpath "$2")
target="$(realpath "$(dirname "$0")/..")/src/oat/tokenizers/ready_made_checkpoints"
mkdir -p "$1" "$target"
cd "$1"  # names without folders: they are recorded in the checkpoints
shift 2

fit() {  # NAME DATA OPTION…
    rm -rf "${1:?}"
    oat fit --data "$2" --tokenizer oat "${@:3}" --out "$1"
    rm -rf "${target:?}/$1"
    cp -r "$1/best" "$target/$1"
}

small=(--preset cpu --encoder-layers 1 --decoder-layers 1 --validate-every 500)  # of half the layers: below 2 MB
[ $# -gt 0 ] || set -- metaworld pusht robosuite
for name in "$@"; do
    case $name in
        metaworld)
            [ -d metaworld-demos ] || oat collect metaworld --tasks all --episodes 8 --out metaworld-demos
            fit metaworld metaworld-demos "${small[@]}" --steps 2000 ;;
        pusht)
            ln -sfn "$pusht" pusht_cchi_v7_replay.zarr
            fit pusht pusht_cchi_v7_replay.zarr "${small[@]}" --steps 2000 ;;
        robosuite)
            [ -d robosuite-demos ] || oat collect robomimic --tasks lift can square --episodes 40 --out robosuite-demos
            # Within [-1, 1] by definition, for every arm; the scripts themselves hardly tilt the hand.
            fit robosuite robosuite-demos "${small[@]}" --steps 1200 --normalization none ;;
        *)
            echo "there is no tokenizer $name, only metaworld, pusht, robosuite" >&2
            exit 1 ;;
    esac
done
