"""The graphs that a policy is exported as, as PyTorch modules with folded weights: context, step and actions.

context: observations and tasks → keys and values of the cross-attentions, once per chunk.
step: one token more with a static key-value cache, or one denoising step.
actions: the tokens so far (see `oat.export.detokenizer`), or the denoised chunk → actions in the robot's units.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat.export.detokenizer import make_detokenizer
from oat.export.folded_blocks import FoldedBlocks, FoldedMemory, Keys, Values, normalize
from oat.export.graph_policies import TokenShape
from oat.policies.autoregressive import AutoregressivePolicy
from oat.policies.context import ContextConfig
from oat.policies.diffusion import DiffusionPolicy, ddim_step
from oat.policies.policy import Policy

Actions = Float[Tensor, "batch time numbers"]
Cache = Float[Tensor, "batch cache_heads length head_dim"]

_ROWS = 2  # of the example inputs; a single one would be taken for a constant


class ContextGraph(nn.Module):
    """Tasks, and observations in the order of the context's keys."""

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.context, self.memory = policy.context, FoldedMemory(policy.backbone.layers)

    def forward(self, tasks: Int64[Tensor, " batch"], *values: Tensor) -> tuple[Keys, Values]:
        return self.memory(self.context(dict(zip(self.context.config.keys, values, strict=True)), tasks))


class TokenStep(nn.Module):
    """Read the last token at its place, extend the cache there, and choose the next one.

    That is the largest of logits / temperature + noise among the `top_k` most likely: Gumbel noise draws a sample,
    zeros take the most likely.
    """

    positions: Tensor
    masks: Tensor
    places: Tensor

    def __init__(self, policy: AutoregressivePolicy) -> None:
        super().__init__()
        self.heads, length = policy.config.width.heads, policy.length
        self.embedding = policy.embedding
        self.blocks = FoldedBlocks(policy.backbone.layers)
        self.head = nn.Linear(policy.config.width.dim, policy.outputs, bias=False)
        self.head.weight.data = policy.embedding.weight[: policy.outputs] * policy.backbone.norm.weight
        self.register_buffer("positions", policy.positions.detach())
        self.register_buffer("masks", torch.full((length, length), -torch.inf).triu(1))
        self.register_buffer("places", torch.arange(length)[:, None])

    def forward(
        self,
        last: Int64[Tensor, " batch"],
        place: Int64[Tensor, "1"],
        cache: Cache,
        keys: Keys,
        values: Values,
        noise: Float[Tensor, "batch outputs"],
        temperature: Float[Tensor, ""],
        top_k: int | torch.SymInt,
    ) -> tuple[Int64[Tensor, " batch"], Float[Tensor, " batch"], Cache]:
        """The token, its log-probability, and the cache with the last token's keys and values."""
        x = (self.embedding(last) + self.positions[place])[:, None]
        here, mask = self.places == place, self.masks[place]
        caches = torch.split(cache, self.heads, 1)
        extended: list[Tensor] = []
        for number, (block, memory) in enumerate(self.blocks.with_memory(keys, values)):
            query, key, value = block.project(x)
            key = torch.where(here, key, caches[2 * number])
            value = torch.where(here, value, caches[2 * number + 1])
            x = block.read(block.mix(x, query, key, value, mask), *memory)
            extended += [key, value]
        logits = self.head(normalize(x))[:, 0]
        chosen = _sample(logits, noise, temperature, top_k)
        probability = logits.log_softmax(-1).gather(1, chosen[:, None])[:, 0]
        return chosen, probability, torch.cat(extended, dim=1)


def _sample(logits: Tensor, noise: Tensor, temperature: Tensor, top_k: int | torch.SymInt) -> Int64[Tensor, " batch"]:
    """As `oat.policies.decoding.choose`."""
    scaled = logits / temperature
    smallest = scaled.topk(top_k).values[:, -1:]
    return (scaled.masked_fill(scaled < smallest, -torch.inf) + noise).argmax(-1)


class DenoisingStep(nn.Module):
    """One DDIM step; what the blocks make of the timestep's token is computed in advance."""

    positions: Tensor
    time_keys: Tensor
    time_values: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, policy: DiffusionPolicy) -> None:
        super().__init__()
        self.from_action = policy.from_action
        self.blocks = FoldedBlocks(policy.backbone.layers)
        self.norm, self.to_noise = policy.backbone.norm, policy.to_noise
        memory = FoldedMemory(policy.backbone.layers)
        with torch.no_grad():
            keys, values = memory(policy.from_time(policy.times)[:, None])
        buffers = {"positions": policy.positions, "time_keys": keys, "time_values": values}
        buffers |= {"low": policy.normalizer.low, "high": policy.normalizer.high}
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(
        self,
        sample: Actions,
        time: Int64[Tensor, "1"],
        now: Float[Tensor, ""],
        then: Float[Tensor, ""],
        keys: Keys,
        values: Values,
    ) -> tuple[Actions, Actions]:
        """The sample at the next lower noise level, and the clean chunk it heads for."""
        rows = sample.shape[0]  # len() would make it a constant of the graph
        keys = torch.cat([keys, self.time_keys[time].expand(rows, -1, -1, -1)], dim=3)
        values = torch.cat([values, self.time_values[time].expand(rows, -1, -1, -1)], dim=2)
        x = self.from_action(sample) + self.positions
        for block, memory in self.blocks.with_memory(keys, values):
            x = block.read(block.mix(x, *block.project(x)), *memory)
        return ddim_step(sample, self.to_noise(self.norm(x)), now, then, self.low, self.high)


class DenoisedActions(nn.Module):
    """A denoised chunk in the robot's units."""

    def __init__(self, policy: DiffusionPolicy) -> None:
        super().__init__()
        self.normalizer, self.transform = policy.normalizer, policy.space.transform

    def forward(self, clean: Actions, state: Float[Tensor, "batch state"] | None = None) -> Actions:
        return self.transform.inverse(self.normalizer.denormalize(clean), state)


@dataclass(frozen=True)
class Graph:
    """A module with example inputs; no tensor may be two of them, the exporter would take them for one."""

    module: nn.Module
    inputs: dict[str, Tensor | int]
    """The first axis of those that have one is free, unless its length is 1."""
    outputs: tuple[str, ...]


def make_graphs(policy: Policy) -> dict[str, Graph]:
    """The policy as context, step and actions."""
    space, sizes = policy.space, policy.observed.sizes()
    tasks, chunk = torch.zeros(_ROWS, dtype=torch.int64), torch.zeros(_ROWS, space.action_horizon, space.model_dim)
    values = {
        key: torch.zeros(_ROWS, policy.observed.obs_horizon, *size, dtype=_dtype(policy.observed, key))
        for key, size in sizes.items()
    }
    context = Graph(ContextGraph(policy), {"tasks": tasks, **values}, ("keys", "values"))
    with torch.no_grad():
        memory = dict(zip(context.outputs, context.module(tasks, *values.values()), strict=True))
    state = {} if space.transform.state_key is None else {"state": torch.zeros(_ROWS, int(space.state_dim or 0))}
    if isinstance(policy, DiffusionPolicy):
        step = {"sample": chunk, "time": torch.tensor([0]), "now": torch.ones(()), "then": torch.ones(()), **memory}
        return {
            "context": context,
            "step": Graph(DenoisingStep(policy), step, ("sample_then", "clean")),
            "actions": Graph(DenoisedActions(policy), {"clean": chunk, **state}, ("actions",)),
        }
    assert isinstance(policy, AutoregressivePolicy)
    detokenizer, shape = make_detokenizer(policy.tokenizer), TokenShape.of(policy)
    tokens = {"ids": tasks[:, None].expand(-1, policy.longest), "lengths": tasks + 1}
    step = {
        "last": tasks,
        "place": torch.tensor([0]),
        "cache": torch.zeros(_ROWS, shape.cache_heads, shape.longest, shape.head_dim),
        **memory,
        "noise": torch.zeros(_ROWS, shape.outputs),
        "temperature": torch.ones(()),
        "top_k": min(10, shape.outputs),
    }
    return {
        "context": context,
        "step": Graph(TokenStep(policy), step, ("token", "log_probability", "cache_then")),
        "actions": Graph(detokenizer, {**tokens, "times": torch.arange(space.action_horizon), **state}, ("actions",)),
    }


def _dtype(context: ContextConfig, key: str) -> torch.dtype:
    return torch.uint8 if key in context.cameras else torch.float32
