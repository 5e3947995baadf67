"""The record of data and training that a checkpoint begins with."""

from oat.data.episodes import Episodes
from oat.io.commands import command_line
from oat.io.training_record import TrainingRecord
from oat.training.config import FitConfig, TrainPolicyConfig


def begin_record(verb: str, config: FitConfig | TrainPolicyConfig, episodes: Episodes) -> TrainingRecord:
    """Return the record of all that is known before training; every checkpoint adds recipe, step and measures."""
    return TrainingRecord(
        data=str(config.data),
        episodes=len(episodes),
        frames=episodes.num_frames,
        tasks=len(episodes.tasks),
        validation=config.validation,
        seed=config.seed,
        command=command_line(verb, config),
    )
