"""What a checkpoint records of its data and its training."""

from oat.data.episodes import Episodes
from oat.io.commands import command_line
from oat.io.training_record import TrainingRecord
from oat.training.config import FitConfig, TrainPolicyConfig


def begin_record(verb: str, config: FitConfig | TrainPolicyConfig, episodes: Episodes) -> TrainingRecord:
    """Return all that is known before training; recipe, steps and measures are added with every checkpoint."""
    return TrainingRecord(
        data=str(config.data),
        episodes=len(episodes),
        frames=episodes.num_frames,
        tasks=len(episodes.tasks),
        validation=config.validation,
        seed=config.seed,
        command=command_line(verb, config),
    )
