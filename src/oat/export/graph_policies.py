"""Policies that run as graphs in an engine: the same chunks as the PyTorch policy for the same noise."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from oat.errors import unknown_name
from oat.export.engines import Engine
from oat.interfaces import Observation
from oat.policies.autoregressive import AutoregressivePolicy
from oat.policies.context import ContextConfig, Values, read_values
from oat.policies.deadline import Pace
from oat.policies.decoding import Decoding, Denoising, Noise, TokenDecoding, TokenLimits, gumbel
from oat.policies.diffusion import DiffusionPolicy, check_denoising, ddim_times, signal_levels
from oat.policies.predictor import Chunk, ChunkPredictor
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens

Random = Float[Tensor, "tokens batch outputs"]


class GraphPolicy(ChunkPredictor):
    """What needs no weights: reading observations, drawing noise, looping over steps. For one thread at a time."""

    def __init__(self, context: ContextConfig, space: ActionSpace, engine: Engine) -> None:
        self.space, self.engine, self._context = space, engine, context

    @property
    def observed(self) -> ContextConfig:
        return self._context

    def read(self, observation: Observation) -> tuple[Values, Int64[Tensor, " batch"]]:
        values, known = read_values(self._context, observation, self.reference), self._context.tasks
        for task in observation.tasks:
            if task not in known:
                raise unknown_name("task", task, known)
        return values, torch.tensor([known.index(task) for task in observation.tasks])

    def inferring(self) -> AbstractContextManager[None]:
        return torch.no_grad()

    def _memory(self, values: Values, tasks: Int64[Tensor, " batch"]) -> dict[str, Any]:
        """Run the context graph: the keys and values that every step reads."""
        seen = {key: self.engine.put(values[key]) for key in self._context.keys}
        keys, memory = self.engine.run("context", {"tasks": self.engine.put(tasks), **seen})
        return {"keys": keys, "values": memory}

    def _actions(self, values: Values, inputs: Mapping[str, Tensor]) -> Float[Tensor, "batch time dim"]:
        """Run the actions graph, with the state where the action transform refers to it."""
        given = {**inputs, **self._state(values)}
        (actions,) = self.engine.run("actions", {name: self.engine.put(tensor) for name, tensor in given.items()})
        return self.engine.get(actions)

    def _state(self, values: Values) -> dict[str, Tensor]:
        state = self.current_state(values)
        return {} if state is None else {"state": state}


@dataclass(frozen=True)
class TokenShape:
    """The sizes of a next-token policy."""

    tokenizer: str
    prefix_decodable: bool
    longest: int
    """Tokens of a whole chunk."""
    outputs: int
    """Tokens to choose from; the number after them is BOS."""
    cache_heads: int
    """Heads of all layers, those of keys and of values."""
    head_dim: int

    @classmethod
    def of(cls, policy: AutoregressivePolicy) -> "TokenShape":
        tokenizer, width = policy.tokenizer, policy.config.width
        heads = 2 * width.heads * policy.config.layers
        return cls(tokenizer.kind, tokenizer.prefix_decodable, policy.longest, policy.outputs, heads, width.head_dim)


class GraphTokenPolicy(GraphPolicy):
    """Next-token generation with a static cache."""

    kind = AutoregressivePolicy.kind

    def __init__(self, context: ContextConfig, space: ActionSpace, engine: Engine, shape: TokenShape) -> None:
        super().__init__(context, space, engine)
        self.shape = shape
        self._places = [engine.put(torch.tensor([place])) for place in range(shape.longest)]

    @property
    def default_decoding(self) -> TokenDecoding:
        return TokenDecoding()

    @property
    def anytime(self) -> bool:
        return self.shape.prefix_decodable

    def check_decoding(self, decoding: Decoding) -> None:
        limits = TokenLimits(self.shape.tokenizer, self.anytime, self.shape.longest, self.space.action_horizon)
        limits.check(decoding)

    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, pace: Pace
    ) -> Iterator[Chunk]:
        length = decoding.num_tokens or self.shape.longest
        random = self._noise(len(tasks), length, decoding, noise)
        if "chunk" in self.engine.graphs and not pace.watches:
            yield self._whole_chunk(values, tasks, decoding, random)
        else:
            yield from self._step_by_step(values, tasks, decoding, random, pace)

    def _whole_chunk(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: TokenDecoding, random: Random
    ) -> Chunk:
        """In one graph, where nobody asks for more than the end."""
        inputs = {
            "tasks": tasks,
            **{key: values[key] for key in self.observed.keys},
            "noise": random,
            **self._sampling(decoding),
            "times": torch.arange(decoding.num_actions or self.space.action_horizon),
            **self._state(values),
        }
        outputs = self.engine.run("chunk", {name: self.engine.put(value) for name, value in inputs.items()})
        ids, log_probabilities, actions = map(self.engine.get, outputs)
        return _chunk(actions, ids, log_probabilities)

    def _step_by_step(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: TokenDecoding, random: Random, pace: Pace
    ) -> Iterator[Chunk]:
        put, rows, length = self.engine.put, len(tasks), len(random)
        noise = [put(each) for each in random]
        inputs = {
            "last": put(torch.full((rows,), self.shape.outputs)),
            "place": self._places[0],
            "cache": put(torch.zeros(rows, self.shape.cache_heads, self.shape.longest, self.shape.head_dim)),
            **self._memory(values, tasks),
            "noise": noise[0],
            **{name: put(value) for name, value in self._sampling(decoding).items()},
        }
        ids = torch.zeros(rows, self.shape.longest, dtype=torch.int64)
        chosen = torch.zeros(rows, length)
        for place in range(length):
            inputs |= {"place": self._places[place], "noise": noise[place]}
            inputs["last"], log_probability, inputs["cache"] = self.engine.run("step", inputs)
            ids[:, place] = self.engine.get(inputs["last"])
            chosen[:, place] = self.engine.get(log_probability)
            wanted = pace.wants_chunk() and self.anytime
            if wanted or place + 1 == length:
                lengths = torch.full((rows,), place + 1)
                times = torch.arange(decoding.num_actions or self.space.action_horizon)
                actions = self._actions(values, {"ids": ids, "lengths": lengths, "times": times})
                yield _chunk(actions, ids[:, : place + 1].clone(), chosen[:, : place + 1].clone())

    def _noise(self, rows: int, length: int, decoding: TokenDecoding, noise: Noise | None) -> Random:
        """What is added to the logits of every token; zeros leave the most likely the largest."""
        if decoding.greedy or noise is None:
            return torch.zeros(length, rows, self.shape.outputs)
        return gumbel(noise.uniform(length, self.shape.outputs)).transpose(0, 1)

    def _sampling(self, decoding: TokenDecoding) -> dict[str, Tensor | int]:
        top_k = min(decoding.top_k or self.shape.outputs, self.shape.outputs)
        return {"temperature": torch.tensor(float(decoding.temperature)), "top_k": top_k}


def _chunk(
    actions: Float[Tensor, "batch time dim"],
    ids: Int64[Tensor, "batch tokens"],
    log_probabilities: Float[Tensor, "batch tokens"],
) -> Chunk:
    rows, used = ids.shape
    lengths = torch.full((rows,), used)
    return Chunk(actions, torch.ones(rows, dtype=torch.bool), lengths, Tokens(ids, lengths), log_probabilities)


class GraphDiffusionPolicy(GraphPolicy):
    """DDIM over normalised chunks."""

    kind = DiffusionPolicy.kind

    @property
    def default_decoding(self) -> Denoising:
        return Denoising()

    @property
    def anytime(self) -> bool:
        return True

    def check_decoding(self, decoding: Decoding) -> None:
        check_denoising(decoding)

    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, pace: Pace
    ) -> Iterator[Chunk]:
        assert noise is not None
        put, memory = self.engine.put, self._memory(values, tasks)
        sample = put(noise.normal(self.space.action_horizon, self.space.model_dim))
        times, levels = ddim_times(decoding.steps), signal_levels()
        for number, time in enumerate(times, start=1):
            then = torch.ones(()) if number == len(times) else levels[times[number]]
            inputs = {"time": put(torch.tensor([time])), "now": put(levels[time]), "then": put(then)}
            sample, clean = self.engine.run("step", {"sample": sample, **inputs, **memory})
            if pace.wants_chunk() or number == len(times):
                actions = self._actions(values, {"clean": self.engine.get(clean)})
                valid = torch.ones(len(tasks), dtype=torch.bool)
                yield Chunk(actions, valid, torch.full((len(tasks),), number))
