"""The graphs that a policy is exported as, as PyTorch modules with folded weights: what all kinds share.

context: observations and tasks → keys and values of the cross-attentions, once per chunk.
step: one step more, such as a token (`oat.export.token_graphs`) or a denoising step (`oat.export.diffusion_graphs`).
actions: what was generated → actions in the robot's units.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat.export.folded_blocks import FoldedMemory, Keys, Values
from oat.policies.policy import Policy

Context = Float[Tensor, "batch tokens dim"]

ROWS = 2
"""Rows of the example inputs; a single one would be taken for a constant."""


@dataclass(frozen=True)
class Graph:
    """A module with example inputs; no tensor may be two of them, the exporter would take them for one."""

    module: nn.Module
    inputs: dict[str, Tensor | int]
    """The first axis of those that have one is free, unless its length is 1."""
    outputs: tuple[str, ...]
    variadic_from: int | None = None
    """How many inputs stand before a variadic argument of the module, which takes the others."""


class ContextGraph(nn.Module):
    """Encode tasks, and observations in the order of the context's keys."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.context = policy.context
        self.memory = FoldedMemory(policy.backbone.layers)

    def forward(self, tasks: Int64[Tensor, " batch"], *values: Tensor) -> tuple[Keys, Values, Context]:
        """Return the keys and values that the blocks' cross-attentions read, and the context that they are made of."""
        context = self.context(dict(zip(self.context.config.keys, values, strict=True)), tasks)
        return *self.memory(context), context


def context_graph(policy: Policy) -> Graph:
    """Return the graph that encodes what a policy sees."""
    seen = policy.observed
    values = {
        key: torch.zeros(ROWS, seen.obs_horizon, *size, dtype=torch.uint8 if key in seen.cameras else torch.float32)
        for key, size in seen.sizes().items()
    }
    tasks = torch.zeros(ROWS, dtype=torch.int64)
    return Graph(ContextGraph(policy), {"tasks": tasks, **values}, ("keys", "values", "context"), variadic_from=1)


@torch.no_grad()
def example_memory(context: Graph) -> dict[str, Tensor | int]:
    """Return example keys and values of a context graph, which are inputs of a step."""
    return dict(zip(context.outputs[:2], context.module(*context.inputs.values())[:2], strict=True))


def example_state(policy: Policy) -> dict[str, Tensor | int]:
    """Return an example of the state as an input of an actions graph, if the action transform refers to it."""
    if policy.space.transform.state_key is None:
        return {}
    return {"state": torch.zeros(ROWS, int(policy.space.state_dim or 0))}
