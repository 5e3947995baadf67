"""Show demonstrations, chunks token by token, and rollouts in Rerun's viewer (`oat view`, https://rerun.io)."""

from pathlib import Path
from typing import Any

from rich.console import Console

from oat.data.episodes import open_dataset, parse_episode_ranges
from oat.errors import InvalidOption, refuse_unused
from oat.evaluation.records import RECORDS_FILE
from oat.io.atomic import staged_file
from oat.io.extras import import_extra
from oat.report.view_episodes import log_episodes
from oat.report.view_rollouts import log_rollouts
from oat.tokenizers.loading import load_tokenizer

FEW = "0:3"
"""Episodes that are shown where none are named."""


def view(path: Path, tokenizer: Path | None, episodes: str | None, save: Path | None) -> None:
    """Show a data set or the records of an evaluation in the viewer, or save it for the viewer."""
    rerun = import_extra("rerun", "rerun")
    stream = rerun.RecordingStream("oat")
    if save is None:
        _log(stream, path.expanduser(), tokenizer, episodes, lambda: stream.spawn())
        return
    if save.suffix != ".rrd":
        raise InvalidOption(f"Rerun's recordings end with .rrd, got {save}")
    with staged_file(save.expanduser()) as staging:
        _log(stream, path.expanduser(), tokenizer, episodes, lambda: stream.save(staging))
        stream.disconnect()  # writes what is still in memory
    Console(soft_wrap=True).print(f"recording: {save}; open it by: rerun {save}", highlight=False, markup=False)


def _log(stream: Any, path: Path, tokenizer: Path | None, episodes: str | None, begin: Any) -> None:
    """Log what is at the path; nothing is opened before it is known that it can be."""
    if (path / RECORDS_FILE).exists():
        refuse_unused("an evaluation", "a data set", tokenizer=tokenizer, episodes=episodes)
        begin()
        log_rollouts(stream, path)
        return
    read = open_dataset(path)
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)
    if loaded is not None and loaded.action_dim != read.action_dim:
        raise InvalidOption(f"{path} has {read.action_dim}-D actions, the tokenizer is for {loaded.action_dim}-D ones")
    shown = parse_episode_ranges(episodes or FEW, len(read))
    begin()
    log_episodes(stream, read, shown.tolist(), loaded)
