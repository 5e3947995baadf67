"""Splitting a data set into training and validation episodes, with the same share of every task."""

import numpy as np
from jaxtyping import Int64

from oat.data.episodes import Episodes
from oat.data.shuffle import Permutation, derive_key
from oat.errors import InvalidOption


def split_episodes(
    episodes: Episodes, validation: float = 0.1, seed: int = 0
) -> tuple[Int64[np.ndarray, " train"], Int64[np.ndarray, " validation"]]:
    """Return the numbers of training and validation episodes, stratified by task.

    Each task gives its share rounded down; what is missing to the whole share, rounded, comes from the tasks with the
    largest remainders. A task with several episodes keeps one for training; tasks with a single one give it last.
    """
    if not 0 <= validation < 1:
        raise InvalidOption(f"the validation share must be in [0, 1), got {validation}")
    total = min(max(round(len(episodes) * validation), 1 if validation else 0), len(episodes) - 1)
    order = Permutation(len(episodes), derive_key(seed))(np.arange(len(episodes)))
    _, task, counts = np.unique(episodes.task_ids, return_inverse=True, return_counts=True)
    quota = _quota(counts, validation, total, seed)
    grouped = order[np.argsort(task[order], kind="stable")]  # each task's episodes together, in random order
    rank = np.arange(len(episodes)) - np.repeat(np.cumsum(counts) - counts, counts)
    held_out = np.sort(grouped[rank < np.repeat(quota, counts)])
    return np.setdiff1d(np.arange(len(episodes)), held_out), held_out


def _quota(
    counts: Int64[np.ndarray, " tasks"], validation: float, total: int, seed: int
) -> Int64[np.ndarray, " tasks"]:
    """Return how many episodes each task gives to validation, by the largest remainders, ties in random order."""
    quota = np.minimum(np.floor(counts * validation).astype(np.int64), counts - 1)
    remainder = np.where(counts > 1, counts * validation - quota, -1.0)  # a task's only episode is given last
    ties = Permutation(len(counts), derive_key(seed, 1))(np.arange(len(counts)))
    for number in np.lexsort((ties, -remainder)).tolist():
        if quota.sum() >= total:
            break
        quota[number] += quota[number] < max(counts[number] - 1, 1)
    return quota
