"""The command line that gives a configuration, and the training record that begins with it."""

import shlex
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, get_args

import tyro

from oat.data.episodes import Episodes
from oat.io.training_record import TrainingRecord
from oat.training.config import FitConfig, TrainPolicyConfig


def begin_record(verb: str, config: FitConfig | TrainPolicyConfig, episodes: Episodes) -> TrainingRecord:
    """Return what is known before training; recipe, steps and measures are added with every checkpoint."""
    return TrainingRecord(
        data=str(config.data),
        episodes=len(episodes),
        frames=episodes.num_frames,
        tasks=len(episodes.tasks),
        validation=config.validation,
        seed=config.seed,
        command=command_line(verb, config),
    )


def command_line(verb: str, config: Any) -> str:
    """The command that gives this configuration, without options that have their default value.

    --resume is left out: it is how to continue a run, and no part of what the run makes.
    """
    return shlex.join(["oat", verb, *_words(config)])


def _words(config: Any) -> Iterator[str]:
    for field in fields(config):
        value, flag = getattr(config, field.name), field.name.replace("_", "-")
        default = field.default_factory() if field.default_factory is not MISSING else field.default
        if value == default or field.name == "resume":
            continue
        if is_dataclass(value):
            yield from _words(value)
        elif tyro.conf.Positional in get_args(field.type):
            yield str(value)
        elif isinstance(default, bool):
            yield f"--{flag}" if value else f"--no-{flag}"
        else:
            yield f"--{flag}"
            yield from map(str, value if isinstance(value, tuple) else (value,))
