"""What a step of a tokenizer's training costs: several kinds of it, timed in turn on one thread."""

import statistics
import time
from collections.abc import Callable, Sequence

import torch

from oat.nn.recipe import TrainConfig
from oat.tokenizers.autoencoder import AutoencoderTokenizer
from oat.training.optimizers import make_optimizers

Step = Callable[[], None]


def training_step(model: AutoencoderTokenizer, recipe: TrainConfig, batch_size: int | None = None) -> Step:
    """Return a step of a recipe on random chunks, the optimizers' work included."""
    optimizers = make_optimizers(model, {}, recipe)
    chunks = torch.randn(batch_size or recipe.batch_size, model.space.action_horizon, model.space.action_dim)
    valid = torch.ones(chunks.shape[:2], dtype=torch.bool)
    generator = torch.Generator()

    def step() -> None:
        torch.autograd.backward(model(chunks, valid, generator).loss)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    return step


def time_in_turn(steps: Sequence[Step], rounds: int) -> list[float]:
    """Return the processor seconds of each step, the median of many rounds in which all take their turn."""
    seconds: list[list[float]] = [[] for _ in steps]
    for _ in range(rounds):
        for step, taken in zip(steps, seconds, strict=True):
            begin = time.process_time()
            step()
            taken.append(time.process_time() - begin)
    return [statistics.median(taken) for taken in seconds]
