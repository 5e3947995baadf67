"""Log demonstrations for Rerun's viewer: actions, states and cameras over steps, and chunks by their first K tokens."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int64

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import Episodes
from oat.data.transforms import transform_inputs
from oat.io.extras import import_extra
from oat.io.progress import progress_bar
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.measures import ChunkBatch, decode_prefixes

STEP = "step"
"""The viewer's timeline: steps of an episode."""


def log_episodes(stream: Any, episodes: Episodes, shown: Sequence[int], tokenizer: BaseTokenizer | None) -> None:
    """Log these episodes, and with a tokenizer what each number of tokens makes of their chunks."""
    names = episodes.action_names or tuple(map(str, range(episodes.action_dim)))
    with progress_bar("logging episodes", len(shown)) as bar:
        for number in shown:
            frames = episodes.frames(number)
            place = f"episode_{number}"
            stream.log(f"{place}/task", _rerun().TextDocument(episodes.task(number)), static=True)
            log_curves(stream, f"{place}/action", episodes.actions[frames], names)
            _log_observations(stream, place, episodes, frames)
            if tokenizer is not None:
                _log_decoded(stream, place, episodes.select([number]), tokenizer, names)
            bar.advance()


def log_curves(
    stream: Any, place: str, values: Float[np.ndarray, "steps dim"], names: Sequence[str], first: int = 0
) -> None:
    """Log one curve over the steps for each dimension."""
    rerun = _rerun()
    steps = rerun.TimeColumn(STEP, sequence=np.arange(first, first + len(values)))
    for name, curve in zip(names, values.T, strict=True):
        columns = rerun.Scalars.columns(scalars=curve.astype(np.float64))
        stream.send_columns(f"{place}/{name}", indexes=[steps], columns=columns)


def _log_observations(stream: Any, place: str, episodes: Episodes, frames: Int64[np.ndarray, " steps"]) -> None:
    for key in episodes.vectors:
        values = episodes.observation(key)[frames].reshape(len(frames), -1)
        log_curves(stream, f"{place}/{key}", values, tuple(map(str, range(values.shape[1]))))
    for key in episodes.cameras:
        for step, frame in enumerate(frames):  # one at a time: an episode's images may not fit into memory
            stream.set_time(STEP, sequence=step)
            stream.log(f"{place}/{key}", _rerun().Image(episodes.observation(key)[frame : frame + 1][0]))


def _log_decoded(stream: Any, place: str, episode: Episodes, tokenizer: BaseTokenizer, names: Sequence[str]) -> None:
    """Log the chunks that follow each other in an episode, decoded from every number of tokens."""
    key = tokenizer.space.transform.state_key
    horizon = tokenizer.action_horizon
    windows = Windows(episode, WindowConfig(horizon, 1, () if key is None else (key,)))
    begins = np.arange(0, len(windows), horizon)
    chunks = ChunkBatch(*transform_inputs(windows[begins], tokenizer.space.transform))
    decoded = decode_prefixes(tokenizer, chunks.encode(tokenizer), chunks).cpu().numpy()
    for column, length in enumerate(tokenizer.prefix_lengths()):
        actions = decoded[:, column].reshape(-1, decoded.shape[-1])[: len(windows)]
        log_curves(stream, f"{place}/decoded/tokens_{length}", actions, names)


def _rerun() -> Any:
    return import_extra("rerun", "rerun")
