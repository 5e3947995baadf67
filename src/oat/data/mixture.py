"""Several data sets drawn as one, in fixed proportions."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from jaxtyping import Int64

from oat.data.chunks import Batch, Windows
from oat.data.shuffle import derive_key
from oat.errors import InvalidOption

_WEIGHT_UNIT = 1 << 20  # mixture weights are multiples of 2^-20, so that counting positions is exact


class Mixture:
    """Draw several sources in fixed proportions, each still visited evenly; any position is found in O(sources)."""

    def __init__(self, sources: Sequence[Windows], weights: Sequence[float]) -> None:
        if not sources or len(sources) != len(weights) or not all(0 < weight < np.inf for weight in weights):
            raise InvalidOption(f"a mixture needs one positive weight per source, got {list(weights)}")
        if min(weights) / sum(weights) < 1e-5:
            raise InvalidOption(f"weights must not differ by more than 100,000, got {list(weights)}")
        self.sources = tuple(sources)
        self.weights = np.asarray(weights, float) / np.sum(weights)
        self._check_alike()
        self.tasks = tuple(dict.fromkeys(task for source in sources for task in source.tasks))
        self._first = np.cumsum([0, *map(len, sources)])[:-1]
        self._task_ids = [np.array([self.tasks.index(task) for task in source.tasks]) for source in sources]

    def _check_alike(self) -> None:
        """Raise `InvalidOption` unless examples of all sources can stand in one batch."""
        first = self.sources[0]
        for source in self.sources[1:]:
            ours = source.episodes
            theirs = first.episodes
            if source.config != first.config:
                raise InvalidOption("the sources of a mixture must have equal window settings")
            if ours.action_dim != theirs.action_dim:
                raise InvalidOption(
                    f"cannot mix {ours.action_dim}-D actions ({ours.source}) "
                    f"with {theirs.action_dim}-D actions ({theirs.source})"
                )
            for key in first.config.observations:
                if ours.observation(key).shape[1:] != theirs.observation(key).shape[1:]:
                    raise InvalidOption(f"cannot mix {key} of {ours.source} and {theirs.source}: their shapes differ")

    def __len__(self) -> int:
        """Return the positions after which every source has been visited completely."""
        return int(
            max(np.ceil(len(source) / weight) for source, weight in zip(self.sources, self.weights, strict=True))
        )

    def shuffle(self, positions: Int64[np.ndarray, " n"], seed: int) -> Int64[np.ndarray, " n"]:
        """Return the windows at these positions, each source in an order of its own."""
        owners, ranks = self._assign(positions)
        windows = np.empty_like(positions)
        for number, source in enumerate(self.sources):
            mine = owners == number
            windows[mine] = self._first[number] + source.shuffle(ranks[mine], derive_key(seed, number))
        return windows

    def __getitem__(self, windows: Int64[np.ndarray, " n"]) -> Batch:
        """Return windows by their numbers, which count through all sources, one source after the other."""
        owners = np.searchsorted(self._first, windows, side="right") - 1
        places = [np.flatnonzero(owners == number) for number in range(len(self.sources))]
        parts = [
            replace(part := source[windows[place] - first], task_ids=ids[part.task_ids])
            for source, place, first, ids in zip(self.sources, places, self._first, self._task_ids, strict=True)
        ]
        # The parts come source by source; put their rows back into the order that was asked for.
        back = np.argsort(np.concatenate(places), kind="stable")
        return Batch(
            np.concatenate([part.actions for part in parts])[back],
            np.concatenate([part.valid_mask for part in parts])[back],
            {key: np.concatenate([part.observations[key] for part in parts])[back] for key in parts[0].observations},
            np.concatenate([part.task_ids for part in parts])[back],
            windows,
        )

    def fingerprint(self) -> str:
        """Return the sources' weights and hashes, by which a resumed run notices other data."""
        return " + ".join(
            f"{weight:.6g} {source.fingerprint()}" for source, weight in zip(self.sources, self.weights, strict=True)
        )

    def _assign(self, positions: Int64[np.ndarray, " n"]) -> tuple[np.ndarray, np.ndarray]:
        """Return for each position its source and its rank among that source's positions.

        Source s takes position p of the positions left to it when ⌊(p+1)·w⌋ > ⌊p·w⌋; its rank is then ⌊p·w⌋ and the
        others continue with p - ⌊p·w⌋.
        """
        owners = np.full(len(positions), len(self.sources) - 1)
        ranks = positions.copy()
        undecided = np.arange(len(positions))
        left = positions
        for number in range(len(self.sources) - 1):
            share = round(float(self.weights[number] / self.weights[number:].sum()) * _WEIGHT_UNIT)
            taken = left * share // _WEIGHT_UNIT
            mine = (left + 1) * share // _WEIGHT_UNIT > taken
            owners[undecided[mine]] = number
            ranks[undecided[mine]] = taken[mine]
            undecided = undecided[~mine]
            left = (left - taken)[~mine]
        ranks[undecided] = left
        return owners, ranks
