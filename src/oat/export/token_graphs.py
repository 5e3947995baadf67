"""Next-token policies as graphs: one token more with a static key–value cache, tokens → actions, and all as one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat.errors import InvalidOption
from oat.export.detokenizer import Detokenizer, RemainderDetokenizer, make_detokenizer
from oat.export.engines import Engine
from oat.export.folded_blocks import FoldedBlocks, Keys, normalize
from oat.export.folded_blocks import Values as FoldedValues
from oat.export.fusion import fuse
from oat.export.graph_policy import GraphPolicy
from oat.export.graphs import ROWS, Graph, context_graph, example_memory, example_state
from oat.io.config_json import config_from_json
from oat.policies.autoregressive import AutoregressivePolicy
from oat.policies.context import ContextConfig, Values
from oat.policies.decoding import TokenDecoding, TokenLimits, at_position
from oat.policies.predictor import Chunk
from oat.policies.sampling import Noise, likely_tokens, sample, token_noise
from oat.policies.stopping import StoppingRule
from oat.policies.token_predictor import Ids, Lengths, LogProbabilities, TokenPredictor, TokenSource
from oat.policies.token_predictor import TokenStep as Step
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens

Cache = Float[Tensor, "batch cache_heads length head_dim"]
Random = Float[Tensor, "tokens batch outputs"]
Logits = Float[Tensor, "batch outputs"]
Hidden = Float[Tensor, "batch dim"]


@dataclass(frozen=True)
class TokenShape:
    """Hold the sizes of a next-token policy that running its graphs needs."""

    tokenizer: str
    prefix_decodable: bool
    longest: int
    """Tokens of a whole chunk."""
    outputs: int
    """Tokens to choose from; the number after them is BOS."""
    cache_heads: int
    """Heads of all layers, those of keys and of values."""
    head_dim: int
    remainder: bool = False
    """Whether the actions graph can make exact what the tokens chose."""
    greedy: bool = False
    """Whether the most likely tokens are taken unless a decoding says otherwise."""
    varied: bool = False
    """Whether demonstrators differed, so that sampled tokens alone are, unless a decoding says otherwise."""

    @classmethod
    def of(cls, policy: AutoregressivePolicy) -> "TokenShape":
        """Return the sizes of a policy in PyTorch."""
        tokenizer = policy.tokenizer
        width = policy.config.width
        heads = 2 * width.heads * policy.config.layers
        return cls(
            tokenizer.kind,
            tokenizer.prefix_decodable,
            policy.longest,
            policy.outputs,
            heads,
            width.head_dim,
            policy.remainder is not None,
            policy.config.greedy,
            policy.limits.varied,
        )


class TokenStep(nn.Module):
    """Read the last token at its place, extend the cache there, and sample the next one."""

    positions: Tensor
    masks: Tensor
    places: Tensor
    gain: Tensor

    def __init__(self, policy: AutoregressivePolicy) -> None:
        super().__init__()
        length = policy.length
        self.heads = policy.config.width.heads
        vectors = policy.embedding.vectors().detach()
        self.embedding = nn.Embedding(*vectors.shape)
        self.embedding.weight.data = vectors.contiguous()
        self.blocks = FoldedBlocks(policy.backbone.layers)
        self.head = nn.Linear(policy.config.width.dim, policy.outputs, bias=False)
        # The last norm's gain is folded into the output product.
        self.head.weight.data = vectors[: policy.outputs] * policy.backbone.norm.weight
        self.register_buffer("positions", policy.positions.detach())
        self.register_buffer("masks", torch.full((length, length), -torch.inf).triu(1))
        self.register_buffer("places", torch.arange(length)[:, None])
        self.register_buffer("gain", policy.backbone.norm.weight.detach().clone())

    def forward(
        self,
        last: Int64[Tensor, " batch"],
        place: Int64[Tensor, "1"],
        cache: Cache,
        keys: Keys,
        values: FoldedValues,
        noise: Float[Tensor, "batch outputs"],
        temperature: Float[Tensor, ""],
        top_k: int | torch.SymInt,
    ) -> tuple[Int64[Tensor, " batch"], Float[Tensor, " batch"], Cache, Logits, Hidden]:
        """Return the token, its log-probability, and the cache with the last token's keys and values.

        Logits let several samples share a step, and a stopping head reads what they are made of.
        """
        x = (self.embedding(last) + self.positions[place])[:, None]
        here = self.places == place
        mask = self.masks[place]
        caches = torch.split(cache, self.heads, 1)
        extended: list[Tensor] = []
        for number, (block, memory) in enumerate(self.blocks.with_memory(keys, values)):
            query, key, value = block.project(x)
            # A graph has no memory of its own: the cache goes in and comes out, whole.
            key = torch.where(here, key, caches[2 * number])
            value = torch.where(here, value, caches[2 * number + 1])
            x = block.read(block.mix(x, query, key, value, mask), *memory)
            extended += [key, value]
        normed = normalize(x)
        logits = self.head(normed)[:, 0]
        chosen, log_probability = sample(logits, noise, temperature, top_k)
        return chosen, log_probability, torch.cat(extended, dim=1), logits, normed[:, 0] * self.gain


class GraphTokenPolicy(TokenPredictor, GraphPolicy):
    """Generate tokens by graphs, with a cache of fixed length between two steps."""

    kind = AutoregressivePolicy.kind

    def __init__(self, context: ContextConfig, space: ActionSpace, engine: Engine, shape: TokenShape) -> None:
        super().__init__(context, space, engine)
        self.shape = shape
        self._places = [engine.put(torch.tensor([place])) for place in range(shape.longest)]

    @classmethod
    def graphs_of(cls, policy: AutoregressivePolicy) -> dict[str, Graph]:
        """Return the policy as context, step and actions."""
        shape = TokenShape.of(policy)
        detokenizer: nn.Module = make_detokenizer(policy.tokenizer)
        context = context_graph(policy)
        rows = torch.zeros(ROWS, dtype=torch.int64)
        step = {
            "last": rows,
            "place": torch.tensor([0]),
            "cache": torch.zeros(ROWS, shape.cache_heads, shape.longest, shape.head_dim),
            **example_memory(context),
            "noise": torch.zeros(ROWS, shape.outputs),
            "temperature": torch.ones(()),
            "top_k": min(10, shape.outputs),
        }
        tokens = {"ids": rows[:, None].expand(-1, policy.longest), "lengths": rows + 1}
        times: dict[str, Tensor | int] = {"times": torch.arange(policy.space.action_horizon)}
        if policy.remainder is not None:
            assert isinstance(detokenizer, Detokenizer)
            detokenizer = RemainderDetokenizer(detokenizer, policy.remainder)
            dim = policy.config.width.dim
            times |= {"context": torch.zeros(ROWS, policy.context.num_tokens, dim), "share": torch.ones(())}
        return {
            "context": context,
            "step": Graph(TokenStep(policy), step, ("token", "log_probability", "cache_then", "logits", "hidden")),
            "actions": Graph(detokenizer, {**tokens, **times, **example_state(policy)}, ("actions",)),
        }

    @classmethod
    def shape_of(cls, policy: AutoregressivePolicy) -> dict[str, Any]:
        """Return the sizes of the cache and the vocabulary."""
        return asdict(TokenShape.of(policy))

    @classmethod
    def join(cls, models: Mapping[str, bytes], shape: Mapping[str, Any] | None) -> dict[str, bytes]:
        """Return a graph of the whole chunk, in which the loop over tokens is."""
        assert shape is not None
        return {"chunk": fuse(models, shape)}

    @classmethod
    def input_shapes(
        cls, context: ContextConfig, space: ActionSpace, shape: Mapping[str, Any] | None
    ) -> dict[str, tuple[int, ...]]:
        """Return the sizes of what is observed, of the cache and of the noise."""
        sizes = config_from_json(TokenShape, shape)
        tokens = {"cache": (sizes.cache_heads, sizes.longest, sizes.head_dim), "noise": (sizes.outputs,)}
        return {**super().input_shapes(context, space, shape), **tokens}

    @classmethod
    def restore(
        cls, context: ContextConfig, space: ActionSpace, engine: Engine, shape: Mapping[str, Any] | None
    ) -> "GraphTokenPolicy":
        """Return what runs the graphs, with the sizes that config.json holds."""
        return cls(context, space, engine, config_from_json(TokenShape, shape))

    @property
    def limits(self) -> TokenLimits:
        """Return what the graphs can decode."""
        shape = self.shape
        horizon = self.space.action_horizon
        return TokenLimits(
            shape.tokenizer,
            shape.prefix_decodable,
            shape.longest,
            horizon,
            shape.remainder,
            shape.greedy,
            shape.varied,
        )

    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, rule: StoppingRule
    ) -> Iterator[Chunk]:
        """Yield chunks as the policy in PyTorch does; where only the last is wanted, in one run."""
        # Where nobody asks between two tokens, the loop over them is in the graph, too: see benchmarks/inference.py.
        if "chunk" in self.engine.graphs and not rule.watches and decoding.in_one_piece:
            yield self._whole_chunk(values, tasks, decoding, noise)
        else:
            yield from super().generate(values, tasks, decoding, noise, rule)

    def start_tokens(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: TokenDecoding, noise: Noise | None
    ) -> TokenSource:
        """Run the context graph, and return what runs a step for every token."""
        put = self.engine.put
        get = self.engine.get
        rows = len(tasks)
        samples = decoding.samples
        keys, memory, context = self.encode_context(values, tasks)
        noises = self._random(rows * samples, decoding, noise)
        random = [put(each) for each in noises]
        shared = put(torch.zeros(rows, self.shape.outputs)) if samples > 1 else random[0]
        inputs = {
            "last": put(torch.full((rows,), self.shape.outputs)),
            "place": self._places[0],
            "cache": put(torch.zeros(rows, self.shape.cache_heads, self.shape.longest, self.shape.head_dim)),
            "keys": keys,
            "values": memory,
            "noise": shared,
            **self._sampling_at(decoding, 0),
        }

        def next_token(place: int) -> Step:
            inputs["place"] = self._places[place]
            if place:
                inputs["noise"] = random[place]
                inputs.update({} if decoding.in_one_piece else self._sampling_at(decoding, place))
            inputs["last"], log_probability, inputs["cache"], *more = self.engine.run("step", inputs)
            if place == 0 and samples > 1:
                return self._first_of_samples(inputs, decoding, noises[0], more)
            return Step(get(inputs["last"]), get(log_probability), get(more[1]) if more else None)

        def make_chunk(ids: Ids, log_probabilities: LogProbabilities, lengths: Lengths | None = None) -> Chunk:
            # The actions graph takes tokens that are padded to full length.
            lengths = torch.full((len(ids),), ids.shape[1]) if lengths is None else lengths
            kept = Tokens(ids, lengths).real
            padded = torch.nn.functional.pad(ids.where(kept, 0), (0, self.shape.longest - ids.shape[1]))
            tokens = {"ids": padded, "lengths": lengths, "times": self._times(decoding.num_actions)}
            also = {name: put(value) for name, value in self._share(decoding).items()}
            also = {**self.repeat_rows({"context": context}, samples), **also} if also else {}
            actions = self.actions(self.repeat_reference(values, samples), tokens, also)
            return _chunk(actions, ids.where(kept, 0), log_probabilities * kept, lengths)

        def go_on_from(rows: Int64[Tensor, " batch"]) -> None:
            inputs.update({name: put(get(inputs[name])[rows]) for name in ("last", "cache")})

        return TokenSource(next_token, make_chunk, go_on_from)

    def _first_of_samples(
        self, inputs: dict[str, Any], decoding: TokenDecoding, noise: Tensor, more: Sequence[Any]
    ) -> Step:
        """Draw the first tokens of all samples from the logits of their rows, and let every row be several from now."""
        if not more:
            raise InvalidOption("this export cannot draw several samples: it was made before that, export it anew")
        samples = decoding.samples
        logits, hidden = (self.engine.get(each).repeat_interleave(samples, 0) for each in more)
        top_k = likely_tokens(decoding, self.shape.outputs)
        token, log_probability = sample(logits, noise, at_position(decoding.temperature, 0), top_k)
        inputs.update(self.repeat_rows({name: inputs[name] for name in ("cache", "keys", "values")}, samples))
        inputs["last"] = self.engine.put(token)
        return Step(token, log_probability, hidden)

    def _sampling_at(self, decoding: TokenDecoding, place: int) -> dict[str, Any]:
        return {name: self.engine.put(value) for name, value in self._sampling(decoding, place).items()}

    def _whole_chunk(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: TokenDecoding, noise: Noise | None
    ) -> Chunk:
        inputs = {
            "tasks": tasks,
            **{key: values[key] for key in self.observed.keys},
            "noise": self._random(len(tasks), decoding, noise),
            **self._sampling(decoding),
            "times": self._times(decoding.num_actions),
            **self._share(decoding),
            **self.state_input(values),
        }
        outputs = self.engine.run("chunk", {name: self.engine.put(value) for name, value in inputs.items()})
        ids, log_probabilities, actions = map(self.engine.get, outputs)
        return _chunk(actions, ids, log_probabilities)

    def _random(self, rows: int, decoding: TokenDecoding, noise: Noise | None) -> Random:
        """Return what is added to the logits of every token; zeros leave the most likely the largest."""
        length = decoding.num_tokens or self.length
        random = token_noise(decoding, noise, length, self.shape.outputs)
        return torch.zeros(length, rows, self.shape.outputs) if random is None else random

    def _sampling(self, decoding: TokenDecoding, place: int = 0) -> dict[str, Tensor | int]:
        temperature = torch.tensor(float(at_position(decoding.temperature, place)))
        return {"temperature": temperature, "top_k": likely_tokens(decoding, self.shape.outputs, place)}

    def _share(self, decoding: TokenDecoding) -> dict[str, Tensor]:
        """Return 1 for the remainder and 0 for tokens alone, as an input of graphs that have one."""
        return {"share": torch.tensor(float(decoding.remainder))} if self.shape.remainder else {}

    def _times(self, num_actions: int | None) -> Int64[Tensor, " steps"]:
        return torch.arange(num_actions or self.space.action_horizon)


def _chunk(
    actions: Float[Tensor, "batch time dim"],
    ids: Ids,
    log_probabilities: LogProbabilities,
    lengths: Lengths | None = None,
) -> Chunk:
    rows, used = ids.shape
    lengths = torch.full((rows,), used) if lengths is None else lengths
    return Chunk(actions, torch.ones(rows, dtype=torch.bool), lengths, Tokens(ids, lengths), log_probabilities)
