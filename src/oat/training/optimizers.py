"""Optimizers: AdamW for all parameters, or Muon for the matrices inside the transformers and AdamW for the rest."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from oat.nn.recipe import TrainConfig

_INSIDE = "blocks."  # Muon is for what lies inside; embeddings and the first and last layers are left to AdamW
_COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic whose iteration drives all singular values near 1
_ITERATIONS = 5
_SIZE = 0.5  # of a step per number, in learning rates; AdamW's is about 0.2, tokenizers learn faster with more


def orthogonalize(matrices: Float[Tensor, "n rows columns"]) -> Float[Tensor, "n rows columns"]:
    """Return each matrix with its singular values replaced by about 1; rows must not exceed columns."""
    a, b, c = _COEFFICIENTS
    # The iteration converges for singular values up to 1, and none exceeds the Frobenius norm.
    x = matrices / (matrices.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(_ITERATIONS):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x


class Muon(torch.optim.Optimizer):
    """Step along the nearest orthogonal matrix to the momentum: https://kellerjordan.github.io/posts/muon.

    The size of its steps is in proportion to AdamW's, so that both share one learning rate. It is our own rather than
    torch.optim.Muon, which orthogonalises in bfloat16, matrix by matrix: processors without bfloat16 units emulate it.
    """

    def __init__(self, parameters: Iterable[Any], lr: float, momentum: float = 0.95, weight_decay: float = 0.0) -> None:
        super().__init__(parameters, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Move all parameters that have gradients, those of one shape together."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            shapes: dict[tuple[int, ...], list[nn.Parameter]] = {}
            for parameter in parameters:
                shapes.setdefault(tuple(parameter.shape), []).append(parameter)
            for alike in shapes.values():
                self._step(alike, **{name: group[name] for name in ("lr", "momentum", "weight_decay")})

    def _step(self, parameters: list[nn.Parameter], lr: float, momentum: float, weight_decay: float) -> None:
        """Move all matrices of one shape at once: many small products would take longer than one large."""
        directions = []
        for parameter in parameters:
            assert parameter.grad is not None
            average = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
            average.lerp_(parameter.grad, 1 - momentum)
            # Nesterov's momentum: the gradient is mixed in once more, as if it were seen one step ahead.
            directions.append(parameter.grad.lerp(average, momentum))
        stacked = torch.stack(directions).float()
        # The product of rows with rows is the smaller one where rows are the shorter side.
        wide = stacked.shape[1] <= stacked.shape[2]
        steps = orthogonalize(stacked if wide else stacked.mT)
        # The numbers of an orthogonal matrix with n columns have root mean square 1 / √n; thus _SIZE for all shapes.
        size = _SIZE * max(stacked.shape[1:]) ** 0.5
        for parameter, step in zip(parameters, steps if wide else steps.mT, strict=True):
            parameter.mul_(1 - lr * weight_decay).add_(step.to(parameter.dtype), alpha=-lr * size)


def make_optimizers(
    module: nn.Module, factors: Mapping[str, float], config: TrainConfig
) -> list[torch.optim.Optimizer]:
    """Return optimizers over all parameters that are not frozen.

    `factors` are by the beginnings of parameters' names. Every group's "factor" is what its learning rate is to be
    multiplied with.
    """
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            factor = next((each for prefix, each in factors.items() if name.startswith(prefix)), 1.0)
            matrix = config.optimizer == "muon" and parameter.ndim == 2 and _INSIDE in name
            groups.setdefault((matrix, factor), []).append(parameter)
    lr = config.learning_rate
    decay = config.weight_decay
    inside, others = (
        [{"params": chosen, "factor": factor} for (matrix, factor), chosen in groups.items() if matrix == wanted]
        for wanted in (True, False)
    )
    adamw = torch.optim.AdamW(others, lr, config.betas, weight_decay=decay)
    return [adamw, Muon(inside, lr, weight_decay=decay)] if inside else [adamw]
