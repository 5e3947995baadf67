"""Observations → chunk of actions, in one piece, step by step or until a rule stops it; however it is computed."""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.errors import InvalidOption
from oat.interfaces import Observation
from oat.policies.choosing import Candidates, Contrast, Guided, Previous, choose
from oat.policies.context import ContextConfig, Values
from oat.policies.decoding import Decoding, DecodingOptions, SampledDecoding
from oat.policies.sampling import Noise
from oat.policies.stopping import Deadline, EveryStep, Guiding, StepTimes, StoppingRule
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens

_FIRST_CHUNKS = 3


@dataclass(frozen=True)
class Chunk:
    """Hold what a policy decided, row by row."""

    actions: Float[Tensor, "batch time dim"]
    """In action units; NaN in rows that are not valid."""
    valid: Bool[Tensor, " batch"]
    """False where the tokens do not decode, which only FAST's can fail to do."""
    steps: Int64[Tensor, " batch"]
    """Tokens generated, or denoising steps taken; 1 where a single pass makes the chunk."""
    tokens: Tokens | None = None
    log_probabilities: Float[Tensor, "batch tokens"] | None = None
    """Of each generated token under the model, before temperature and top-k; 0 past a row's end."""

    def __getitem__(self, rows: slice | Tensor) -> "Chunk":
        """Return the chunks of some of the rows."""
        tokens = None if self.tokens is None else self.tokens[rows]
        log_probabilities = None if self.log_probabilities is None else self.log_probabilities[rows]
        return Chunk(self.actions[rows], self.valid[rows], self.steps[rows], tokens, log_probabilities)


class BasePredictor(ABC):
    """Predict chunks of actions; PyTorch's policies and exported ones differ only in how they read and generate."""

    kind: ClassVar[str]
    space: ActionSpace

    options: ClassVar[frozenset[str]] = frozenset()
    """The names of those `DecodingOptions` that mean something to this kind."""
    has_no: ClassVar[str] = "has no such options"
    """What an error says of this kind when a user asks for other options."""

    identity: str | None = None
    """What tells this policy's weights, its tokenizer's included, from all others'; None where that is not known."""

    @property
    def action_scale(self) -> Float[Tensor, " dim"]:
        """Return what distances between actions are measured in, number by number; 1 where ranges are not known."""
        return torch.ones(self.space.action_dim)

    @property
    @abstractmethod
    def observed(self) -> ContextConfig:
        """Return what the policy sees, and the tasks it knows."""

    @property
    @abstractmethod
    def default_decoding(self) -> Decoding:
        """Return how chunks are drawn unless a caller says otherwise."""

    @abstractmethod
    def check_decoding(self, decoding: Decoding) -> None:
        """Raise `InvalidOption` for what this policy cannot do."""

    def decodings(self, options: DecodingOptions) -> list[Decoding]:
        """Return the decodings that a user asks for, or raise `InvalidOption` for what means nothing to this kind."""
        refused = sorted(options.changed() - self.options)
        if refused:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in refused)
            raise InvalidOption(f"a policy of the kind {self.kind} {self.has_no}: leave out {flags}")
        decodings = list(self.make_decodings(options))
        for decoding in decodings:
            self.check_decoding(decoding)
        return decodings

    def make_decodings(self, options: DecodingOptions) -> Iterable[Decoding]:
        """Return a decoding for every combination of options that this kind has; by default it has none."""
        return (self.default_decoding,)

    @property
    @abstractmethod
    def anytime(self) -> bool:
        """Return whether there is a chunk after every step."""

    @abstractmethod
    def read(self, observation: Observation) -> tuple[Values, Int64[Tensor, " batch"]]:
        """Return an observation and its tasks' numbers as tensors, after every check."""

    @abstractmethod
    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, rule: StoppingRule
    ) -> Iterator[Chunk]:
        """Yield the last chunk, and those before it that the rule wants, where they exist."""

    @abstractmethod
    def inferring(self) -> AbstractContextManager[None]:
        """Return the modes in which chunks are computed, as a context."""

    @cached_property
    def _step_times(self) -> defaultdict[int, StepTimes]:
        """Return how long steps took lately, for every number of rows."""
        return defaultdict(StepTimes)

    def check_deadline(self, deadline_ms: float) -> None:
        """Raise `InvalidOption` for a deadline that this policy cannot keep."""
        if not self.anytime or not deadline_ms > 0:
            allowed = "must be positive" if self.anytime else "needs a policy whose every prefix decodes"
            raise InvalidOption(f"a deadline {allowed}, got {deadline_ms} ms")

    def predict_chunk(
        self,
        observation: Observation,
        decoding: Decoding | None = None,
        noise: Noise | None = None,
        pad_to: int | None = None,
        deadline_ms: float | None = None,
        stopping: StoppingRule | None = None,
        previous: Previous | None = None,
    ) -> Chunk:
        """Return one chunk for every row.

        Without noise a row's is keyed by its place in the batch. Sums are rounded differently in batches of different
        sizes: with `pad_to` every call computes that many rows, so that a row's chunk is the same whatever its company.
        Generation ends at the first chunk that the stopping rule wants. With a deadline, that is when one more step
        would miss it, judged by how long steps took lately; at least one is always made, and a policy that has made
        none yet makes only one. Rules that choose among samples may look at the rests of the previous chunks.
        """
        rule = stopping or StoppingRule()
        if deadline_ms is not None:
            self.check_deadline(deadline_ms)
            rule = Deadline(deadline_ms)
        return next(self._start(observation, decoding, noise, rule, pad_to, previous))

    def stream(
        self,
        observation: Observation,
        decoding: Decoding | None = None,
        noise: Noise | None = None,
        previous: Previous | None = None,
    ) -> Iterator[Chunk]:
        """Yield the chunk after every token or denoising step; without prefixes that decode, only the finished one.

        Among several samples, one is chosen anew at every step.
        """
        return self._start(observation, decoding, noise, EveryStep(), previous=previous)

    def _start(
        self,
        observation: Observation,
        decoding: Decoding | None,
        noise: Noise | None,
        rule: StoppingRule,
        pad_to: int | None = None,
        previous: Previous | None = None,
    ) -> Iterator[Chunk]:
        """Check everything now; what is returned computes when it is asked."""
        decoding = decoding or self.default_decoding
        rows = len(observation)
        self.check_decoding(decoding)
        if previous is not None:
            previous.check(rows, self.space.action_dim)
        noise = Noise.of(range(rows), [0] * rows) if noise is None else noise
        if len(noise) != rows:
            raise InvalidOption(f"{rows} observations need as many rows of noise, got {len(noise)}")
        if pad_to is not None and pad_to < rows:
            raise InvalidOption(f"cannot pad {rows} rows to {pad_to}")
        samples = decoding.samples if isinstance(decoding, SampledDecoding) else 1
        # Estimates belong to a number of rows: a batch of sixteen takes longer than one.
        rule.start(self._step_times[(pad_to or rows) * samples])
        missing = 0 if pad_to is None else pad_to - rows
        padded = Noise(noise.keys + noise.keys[:1] * missing)
        if not isinstance(decoding, SampledDecoding) or samples == 1:
            return self._run(self._generate(observation, missing, decoding, padded, rule), rule, rows)
        held = previous if previous is None or not missing else previous.padded(missing)
        guiding = rule
        if isinstance(decoding.choose, Guided) and held is not None:
            guiding = Guiding(rule, partial(self._survivors, decoding.choose, decoding, held))
        chunks = self._generate(observation, missing, decoding, padded, guiding)
        weaker = self._generate_weaker(observation, missing, decoding, padded)
        return self._run(self._choose(chunks, decoding, held, weaker), rule, rows)

    def _generate(
        self, observation: Observation, missing: int, decoding: Decoding, noise: Noise, rule: StoppingRule
    ) -> Iterator[Chunk]:
        """Read the observation now, with the first row as many times more, and return what generates its chunks."""
        values, tasks = self.read(observation)
        if missing:
            values = {key: _repeat_first(value, missing) for key, value in values.items()}
            tasks = _repeat_first(tasks, missing)
        return self.generate(values, tasks, decoding, noise, rule)

    def _generate_weaker(
        self, observation: Observation, missing: int, decoding: SampledDecoding, noise: Noise
    ) -> Iterator[Chunk]:
        """Return what generates the samples that these are contrasted with; nothing where they are not."""
        rule = decoding.choose
        if not isinstance(rule, Contrast):
            return iter(())
        other = rule.weaker
        if other is None:
            return self._generate(observation, missing, decoding.weakened(), noise, StoppingRule())
        drawn = other.default_decoding.drawing(decoding.samples)
        return other._generate(observation, missing, drawn, noise, StoppingRule())

    def _choose(
        self, chunks: Iterator[Chunk], decoding: SampledDecoding, previous: Previous | None, weaker: Iterator[Chunk]
    ) -> Iterator[Chunk]:
        """Yield of each row's samples the one that the decoding's rule chooses."""
        negatives = next(weaker, None)
        for chunk in chunks:
            yield self._chosen(chunk, decoding, previous, negatives)

    def _survivors(
        self, rule: Guided, decoding: SampledDecoding, previous: Previous, steps: int, make_chunk: Callable[[], Chunk]
    ) -> Int64[Tensor, " batch"] | None:
        """Return the rows that samples go on from, where the rule compares them after so many steps."""
        if steps not in rule.after:
            return None
        numbers = rule.survivors(self._candidates(make_chunk(), decoding, previous, None), decoding.commit)
        return (numbers + torch.arange(len(numbers), device=numbers.device)[:, None] * decoding.samples).flatten()

    def _chosen(
        self, chunk: Chunk, decoding: SampledDecoding, previous: Previous | None, negatives: Chunk | None
    ) -> Chunk:
        candidates = self._candidates(chunk, decoding, previous, negatives)
        rows = len(candidates.actions)
        best = choose(decoding.choose, candidates, decoding.commit)
        chosen = chunk[torch.arange(rows, device=best.device) * decoding.samples + best]
        actions = chunk.actions.view(rows, decoding.samples, *chunk.actions.shape[1:])
        return replace(chosen, actions=decoding.choose.finish(chosen.actions, actions, candidates.valid))

    def _candidates(
        self, chunk: Chunk, decoding: SampledDecoding, previous: Previous | None, negatives: Chunk | None
    ) -> Candidates:
        """Return what a rule chooses among, in the scale that distances are measured in."""
        samples = decoding.samples
        rows = len(chunk.actions) // samples
        shape = chunk.actions.shape[1:]
        actions = chunk.actions.reshape(rows, samples, *shape)
        valid = chunk.valid.view(rows, samples)
        device = actions.device
        scale = self.action_scale.to(device)
        likelihoods = chunk.log_probabilities
        theirs = shape if negatives is None else negatives.actions.shape[1:]
        return Candidates(
            actions / scale,
            valid,
            decoding.executed or actions.shape[2],
            None if likelihoods is None else likelihoods.sum(1).view(rows, samples),
            None if previous is None else previous.actions.to(device) / scale,
            None if negatives is None else negatives.actions.to(device).reshape(rows, -1, *theirs) / scale,
        )

    def _run(self, chunks: Iterator[Chunk], rule: StoppingRule, rows: int) -> Iterator[Chunk]:
        """Compute chunks in the policy's modes; between two of them the caller has his own back."""
        while True:
            # Entered anew for every chunk: a caller who streams trains or records gradients in between.
            with self.inferring():
                chunk = next(chunks, None)
            if chunk is None:
                return
            rule.got_chunk()
            yield chunk[:rows]

    def check_choosing(self, decoding: SampledDecoding) -> None:
        """Raise `InvalidOption` where this policy's samples cannot be chosen among in that way."""
        horizon = decoding.length(self.space.action_horizon)
        if decoding.samples > 1:
            decoding.choose.check(self)
        if decoding.commit >= horizon:
            raise InvalidOption(f"commit must be below the chunk's {horizon}, got {decoding.commit}")
        if decoding.executed is not None and decoding.executed > horizon:
            raise InvalidOption(f"executed must be 1…{horizon}, got {decoding.executed}")
        if decoding.executed == horizon and (decoding.commit or decoding.choose.follows):
            rule = "commit" if decoding.commit else decoding.choose.label
            raise InvalidOption(f"{rule} looks at the rest of the previous chunk: execute fewer than all {horizon}")
        rest = horizon - (decoding.executed or 0)
        if decoding.commit > rest:
            raise InvalidOption(
                f"commit must be at most {rest}, which are left of a chunk of {horizon} when {decoding.executed} are "
                f"executed, got {decoding.commit}"
            )

    def warm_up(self, rows: int, decoding: Decoding | None = None) -> None:
        """Make the first chunks, which are slow: deadlines are kept by knowing how long steps take."""
        forever = 1e9 if self.anytime else None
        previous = None
        for seed in range(_FIRST_CHUNKS):
            observation = self.random_observation(rows, seed)
            chunk = self.predict_chunk(observation, decoding, deadline_ms=forever, previous=previous)
            previous = Previous(chunk.actions[:, chunk.actions.shape[1] // 2 :])

    def random_observation(self, rows: int, seed: int = 0) -> Observation:
        """Return random values of everything that the policy sees."""
        generator = np.random.default_rng(seed)
        context = self.observed
        values: dict[str, np.ndarray] = {}
        for key, size in {**self.reference, **context.sizes()}.items():
            shape = (rows, context.obs_horizon, *size)
            images = key in context.cameras
            values[key] = generator.integers(0, 256, shape, np.uint8) if images else generator.normal(size=shape)
        return Observation(values, tuple(context.tasks[row % len(context.tasks)] for row in range(rows)))

    @property
    def reference(self) -> dict[str, tuple[int, ...]]:
        """Return the state that the action transform refers to, which the context need not observe, and its shape."""
        key = self.space.transform.state_key
        dim = self.space.state_dim
        return {} if key is None or dim is None else {key: (dim,)}

    def repeat_reference(self, values: Values, times: int) -> Values:
        """Return the state that the action transform refers to, with every row several times, one after the other."""
        return {key: values[key].repeat_interleave(times, 0) for key in self.reference}

    def current_state(self, values: Values) -> Float[Tensor, "batch state"] | None:
        """Return the state that the action transform refers to, if it refers to one."""
        key = self.space.transform.state_key
        return None if key is None else values[key][:, -1]


def _repeat_first(rows: Tensor, times: int) -> Tensor:
    """Return the rows with the first one as many times more."""
    return torch.cat([rows, rows[:1].expand(times, *rows.shape[1:])])
