"""The interface between training loops and what they train."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from oat.data.chunks import Batch
from oat.errors import OatError
from oat.io.training_record import Measures, TrainingRecord


@runtime_checkable
class Trainable(Protocol):
    """Tell a training loop what it needs to know of a model and its task."""

    @property
    def module(self) -> nn.Module:
        """Return the model whose weights are moved."""
        ...

    def identity(self) -> Mapping[str, Any]:
        """Return what makes a run another one, beside data and recipe: the model's kind and sizes, as JSON values."""
        ...

    def learning_rates(self) -> Mapping[str, float]:
        """Return the factor on the learning rate for parameters whose names begin so; all others have 1."""
        ...

    def loss(self, module: nn.Module, batch: Batch, generator: torch.Generator) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the loss of a batch and further numbers worth logging; `module` is the model, perhaps wrapped."""
        ...

    def validate(self, module: nn.Module) -> Measures:
        """Return held-out measures; their score (smaller is better) decides which checkpoint is the best."""
        ...

    def save(self, module: nn.Module, directory: Path, progress: TrainingRecord) -> None:
        """Write the model's files into an existing directory; they record the training's recipe, step and measures."""
        ...


class TrainingFailed(OatError):
    """Raised when the loss or the weights are not finite, so that further steps are in vain."""
