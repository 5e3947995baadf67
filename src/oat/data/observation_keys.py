"""LeRobot's names for the arrays of other formats, so that policies find the same keys whatever they were read from."""

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from oat.data.episodes import IMAGES
from oat.errors import CorruptDataset


def refuse_repeated(path: Path, names: Iterable[str]) -> None:
    """Raise `CorruptDataset` if two arrays have one name: which of them is meant cannot be known."""
    if repeated := sorted(name for name, count in Counter(names).items() if count > 1):
        raise CorruptDataset(f"{path}: more than one array is called {', '.join(repeated)}")


def observation_keys(path: Path, arrays: Mapping[str, bool]) -> dict[str, str]:
    """Return the LeRobot-style key of each array that another format calls by its own name.

    `arrays` says of each name whether it holds images. A camera's `_image` or `_rgb` is dropped, unless that would give
    two cameras the same key.
    """
    bare = {name: name.removeprefix("observation.").removeprefix("images.") for name in arrays}
    short = {name: text.removesuffix("_image").removesuffix("_rgb") for name, text in bare.items()}
    images = [short[name] for name, image in arrays.items() if image]
    keys = {
        name: IMAGES + (short[name] if images.count(short[name]) == 1 else bare[name])
        if image
        else f"observation.{bare[name]}"
        for name, image in arrays.items()
    }
    # Two names can still become one key, such as `state` and `observation.state`.
    refuse_repeated(path, keys.values())
    return keys
