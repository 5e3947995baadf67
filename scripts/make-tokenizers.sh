#!/usr/bin/env bash
# Make the tokenizers that come with the package, in OUT, and put them into src/oat/tokenizers/ready_made_checkpoints.
# usage: make-tokenizers.sh OUT PUSHT [NAME…]      PUSHT is pusht_cchi_v7_replay.zarr
# Fitting takes three minutes of one core each, collecting demonstrations at most ten.
set -euo pipefail
pusht=$(realpath "$2")
project=$(realpath "$(dirname "$0")/..")
target="$project/src/oat/tokenizers/ready_made_checkpoints"
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
            # The robosuite that we install has no arm but the Panda; the same version of this distribution has.
            [ -d arms ] || python -m pip install --quiet --no-deps -c "$project/constraints.txt" --target arms robosuite
            [ -f robosuite-demos.npz ] ||
                PYTHONPATH=arms python "$project/benchmarks/other_arms.py" collect robosuite-demos.npz
            # Within [-1, 1] by definition, for every arm; the scripts themselves hardly tilt the hand.
            fit robosuite robosuite-demos.npz "${small[@]}" --steps 2000 --normalization none ;;
        *)
            echo "there is no tokenizer $name, only metaworld, pusht, robosuite" >&2
            exit 1 ;;
    esac
done
