"""Behind `oat inspect --verify`: reading everything that a data set holds, so that damage shows at once."""

from pathlib import Path

import numpy as np

from oat.data.episodes import open_dataset
from oat.data.lerobot.digests import check_digests
from oat.io.progress import progress_bar

_BLOCK = 256  # frames of an observation read together


def verify_dataset(path: Path) -> int:
    """Read every file and every frame of a data set; return how many frames there are, or raise what is wrong."""
    check_digests(path, again=True)
    episodes = open_dataset(path)
    frames = len(episodes.actions)
    with progress_bar("verifying", len(episodes.observations) * frames) as bar:
        for column in episodes.observations.values():
            for first in range(0, frames, _BLOCK):
                bar.advance(len(column[np.arange(first, min(first + _BLOCK, frames))]))
    return frames
