"""What a checkpoint records of its data and its training."""

from typing import Any

from oat.data.episodes import Episodes
from oat.io.commands import command_line
from oat.training.config import FitConfig, TrainPolicyConfig


def describe_data(verb: str, config: FitConfig | TrainPolicyConfig, episodes: Episodes) -> dict[str, Any]:
    """Return all that is known before training; recipe, steps and measures are added with every checkpoint."""
    return {
        "data": str(config.data),
        "episodes": len(episodes),
        "frames": episodes.num_frames,
        "tasks": len(episodes.tasks),
        "validation": config.validation,
        "seed": config.seed,
        "command": command_line(verb, config),
    }
