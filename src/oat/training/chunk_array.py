"""Chunks in memory as a source of training batches, as the windows of a data set are."""

import hashlib

import numpy as np
from jaxtyping import Bool, Float32, Int64

from oat.data.chunks import Batch
from oat.data.shuffle import Permutation, derive_keys
from oat.data.statistics import RunningStatistics
from oat.data.transforms import ActionTransform, transform_inputs
from oat.tokenizers.measures import ChunkBatch


class ChunkArray:
    """Draw batches from chunks that are already cut, in an order that visits each once per epoch."""

    tasks: tuple[str, ...] = ("",)  # a source of batches names its tasks; chunks alone are of none

    def __init__(self, chunks: ChunkBatch, state_key: str | None) -> None:
        """Take chunks on the CPU, and the name of the observation that their state is."""
        self._actions: Float32[np.ndarray, "chunks time dim"] = chunks.actions.numpy()
        self._valid: Bool[np.ndarray, "chunks time"] = chunks.valid.numpy()
        given = state_key is not None and chunks.state is not None
        # A policy's windows hold several past observations; a transform refers to the last: here there is only that.
        self._observations = {str(state_key): chunks.state.numpy()[:, None]} if given else {}  # type: ignore[union-attr]

    def __len__(self) -> int:
        return len(self._actions)

    def __getitem__(self, windows: Int64[np.ndarray, " n"]) -> Batch:
        observations = {key: values[windows] for key, values in self._observations.items()}
        tasks = np.zeros(len(windows), np.int64)
        return Batch(self._actions[windows], self._valid[windows], observations, tasks, windows)

    def shuffle(self, positions: Int64[np.ndarray, " n"], seed: int) -> Int64[np.ndarray, " n"]:
        """Return the chunks at these positions of an endless stream that visits every chunk once per epoch."""
        epochs, inside = np.divmod(positions, len(self))
        return Permutation(len(self), derive_keys(seed, epochs))(inside)

    def fingerprint(self) -> str:
        """Return a hash of all chunks, by which a run that is resumed knows its data again."""
        digest = hashlib.blake2b(digest_size=8)
        for array in (self._actions, self._valid, *self._observations.values()):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def statistics(self, transform: ActionTransform) -> RunningStatistics:
        """Return the statistics of transformed actions over every valid step."""
        actions, valid, state = transform_inputs(self[np.arange(len(self))], transform)
        transform.check_values(actions, state)  # here every chunk is seen once; later ones are too many to check
        statistics = RunningStatistics(int(valid.sum()))
        statistics.update(transform.forward(actions, state)[valid].numpy())
        return statistics
