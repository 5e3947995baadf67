"""LeRobot's splits: named ranges of episodes, such as `0:50`; the only groups its `info.json` can express."""

from collections.abc import Mapping
from typing import Any

import numpy as np


def read_splits(info: dict[str, Any], episodes: int) -> dict[str, np.ndarray]:
    """Return the episodes of each split, leaving out entries that are not ranges, which LeRobot does not know."""
    splits: dict[str, np.ndarray] = {}
    listed = info.get("splits")
    for name, span in listed.items() if isinstance(listed, dict) else ():
        first, _, last = str(span).partition(":")
        if first.isdigit() and last.isdigit():
            splits[name] = np.arange(int(first), min(int(last), episodes))  # like a slice, it may end past the last
    return splits


def as_splits(groups: Mapping[str, np.ndarray]) -> tuple[dict[str, str], list[str]]:
    """Return the groups as ranges, and the names of those that are not one; an empty group is left out of both."""
    splits: dict[str, str] = {}
    scattered: list[str] = []
    for name, members in groups.items():
        episodes = np.unique(members)
        if len(episodes) == 0:
            continue
        if episodes[-1] - episodes[0] + 1 == len(episodes):
            splits[name] = f"{episodes[0]}:{episodes[-1] + 1}"
        else:
            scattered.append(name)
    return splits, scattered
