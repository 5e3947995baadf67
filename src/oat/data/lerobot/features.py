"""The features of a LeRobotDataset, and whether an episode has them: checked before anything of it is written."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from oat.data.episodes import CameraStorage, is_image
from oat.data.video import CODEC, pixel_format
from oat.errors import InvalidEpisode

Features = dict[str, dict[str, Any]]
"""For each key the entry of info.json that describes its arrays."""


def stored_arrays(
    episode: str, task: str, actions: np.ndarray, observations: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return an episode's arrays as they will be stored: images as they are, all other numbers as float32.

    Raise `InvalidEpisode`, which names the episode, for anything that cannot be stored.
    """
    if not isinstance(task, str) or "\0" in task or not _is_encodable(task):
        raise InvalidEpisode(f"{episode}: its task must be text, got {task!r}")
    values = {}
    for key, array in {"action": np.asarray(actions), **observations}.items():
        if key != "action" and not key.startswith("observation."):
            raise InvalidEpisode(f"{episode}: observations are named observation.…, got {key!r}")
        # Objects, text and empty vectors have no column type that LeRobot could read.
        if array.ndim == 0 or array.dtype.kind not in "fiub" or 0 in array.shape[1:]:
            raise InvalidEpisode(f"{episode}: {key} must be numbers per frame, got {array.dtype} {array.shape}")
        values[key] = array if is_image(array) else array.astype(np.float32)
    return values


def describe_feature(array: np.ndarray, cameras: CameraStorage, fps: float, names: list[str] | None) -> dict[str, Any]:
    """Return the entry of info.json that describes an array; `names` are those of a vector's dimensions."""
    if not is_image(array):
        return {"dtype": "float32", "shape": list(array.shape[1:]) or [1], "names": names}
    shape: list[int] = list(array.shape[1:])
    entry = {"dtype": cameras, "shape": shape, "names": ["height", "width", "channels"]}
    return entry | {"info": _video_info(shape[0], shape[1], fps)} if cameras == "video" else entry


def check_values(episode: str, values: Mapping[str, np.ndarray]) -> None:
    """Raise `InvalidEpisode` unless actions are vectors, all arrays are equally long and all numbers finite."""
    actions = values["action"]
    if actions.ndim != 2 or len(actions) == 0:
        raise InvalidEpisode(f"{episode}: actions must be (steps ≥ 1, dimensions), got {actions.shape}")
    for key, array in values.items():
        if len(array) != len(actions):
            raise InvalidEpisode(f"{episode}: {key} has {len(array)} frames, actions {len(actions)}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise InvalidEpisode(f"{episode}: {key} is not finite at step {np.argwhere(~np.isfinite(array))[0][0]}")


def check_features(episode: str, features: Features, expected: Features) -> None:
    """Raise `InvalidEpisode` unless an episode has the keys, types and shapes of the set that it is added to."""
    if set(expected) != set(features):
        raise InvalidEpisode(f"{episode}: has {sorted(features)}, the set has {sorted(expected)}")
    for key, feature in features.items():
        for field in ("dtype", "shape"):
            if feature[field] != expected[key][field]:
                raise InvalidEpisode(f"{episode}: {key} has {field} {feature[field]}, the set {expected[key][field]}")


def _video_info(height: int, width: int, fps: float) -> dict[str, Any]:
    described = {"height": height, "width": width, "channels": 3, "codec": CODEC, "fps": fps}
    described |= {"pix_fmt": pixel_format(height, width), "is_depth_map": False}
    return {f"video.{key}": value for key, value in described.items()} | {"has_audio": False}


def _is_encodable(text: str) -> bool:
    """Return whether text has a UTF-8 form, which lone surrogates do not have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
