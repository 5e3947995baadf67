"""What every action tokenizer is: actions → tokens → actions, with what each promises stated (paper, section III).

P.1 short: `max_tokens` per chunk of `action_horizon` × `action_dim` numbers. P.2 total: every sequence of valid ids of
an allowed length decodes. P.3 ordered: every prefix decodes, coarse motion first.
"""

import json
import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from oat.data.normalize import Normalizer
from oat.data.transforms import ActionTransform, Identity
from oat.errors import CheckpointError, InvalidActions, InvalidObservation, InvalidOption, InvalidTokens
from oat.io.checkpoints import (
    config_from_json,
    config_to_json,
    find_checkpoint,
    load_checkpoint,
    staged_checkpoint,
    write_checkpoint,
)
from oat.io.model_cards import ModelCard
from oat.io.training_record import TrainingRecord, stored_record
from oat.tokenizers.tokens import Array, TokenLike, Tokens, as_tokens

_LOAD = """import oat

tokenizer = oat.load_tokenizer("DIRECTORY")
tokens = tokenizer.encode(actions)
decoded = tokenizer.decode(tokens)
"""

Kind = TypeVar("Kind", bound="ActionTokenizer")


@dataclass(frozen=True)
class MaxError:
    """How far a reconstruction may be from the actions, in action units."""

    size: float
    measured: Literal["max", "rms"] = "max"
    """The largest deviation of any valid number, or the root of their mean square."""

    def measure(self, decoded: Tensor, target: Tensor, valid: Bool[Tensor, "*rows time"]) -> Tensor:
        """The deviation of each row (*rows, time, dim)."""
        deviation = (decoded - target).abs() * valid[..., None]
        if self.measured == "max":
            return deviation.amax((-2, -1))
        return (deviation.square().mean(-1).sum(-1) / valid.sum(-1)).sqrt()


@dataclass(frozen=True)
class ActionSpace:
    """The chunks a tokenizer is for, and how they are brought to model space."""

    action_horizon: int = 32
    """H_a: actions per chunk."""
    action_dim: int = 4
    """D_a: numbers per action, as in the data."""
    transform: ActionTransform = field(default_factory=Identity)
    """Applied before normalisation; statistics are computed after it."""
    state_dim: int | None = None
    """Numbers in the state that the transform refers to, if any."""

    def __post_init__(self) -> None:
        if self.action_horizon < 1 or self.action_dim < 1:
            raise InvalidOption(f"a chunk needs at least one number, got {self.action_horizon} × {self.action_dim}")

    @property
    def model_dim(self) -> int:
        """Numbers per action in model space."""
        return self.transform.output_dim(self.action_dim, self.state_dim)


class ActionTokenizer(nn.Module, ABC):
    """Base of all tokenizers: checks what comes in, brings it to model space, and leaves the rest to its kind."""

    kind: ClassVar[str]
    total: ClassVar[bool] = True
    """P.2: whether every token sequence of an allowed length decodes."""
    prefix_decodable: ClassVar[bool] = False
    """P.3: whether sequences of every length from 1 decode."""

    config_class: ClassVar[type]
    config: Any

    def __init__(self, space: ActionSpace) -> None:
        super().__init__()
        self.space = space
        self.normalizer = Normalizer(space.model_dim)
        self.training_record = TrainingRecord()
        """How it was fitted (data, split, seed, recipe, measures); stored with every checkpoint."""

    @property
    def device(self) -> torch.device:
        """Where it computes, and brings what it is given."""
        return self.normalizer.center.device

    @property
    def action_horizon(self) -> int:
        return self.space.action_horizon

    @property
    def action_dim(self) -> int:
        return self.space.action_dim

    @property
    @abstractmethod
    def vocab_size(self) -> int: ...

    @property
    @abstractmethod
    def max_tokens(self) -> int: ...

    @abstractmethod
    def encode_normalized(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Tokens:
        """Tokens of chunks in model space."""

    @abstractmethod
    def decode_normalized(
        self, tokens: Tokens, steps: int, noise: Float[Tensor, "batch time dim"] | None = None
    ) -> tuple[Float[Tensor, "batch steps dim"], Bool[Tensor, " batch"]]:
        """Chunks in model space, and which rows decoded; the others' values are meaningless."""

    @property
    def uses_noise(self) -> bool:
        """Whether decoding starts from noise, which can then be given per row."""
        return False

    @torch.no_grad()
    def encode(
        self,
        actions: Array,
        valid_mask: Array | None = None,
        state: Array | None = None,
        max_error: MaxError | float | None = None,
    ) -> Tokens:
        """Tokens of chunks (batch, H_a, D_a) in action units; invalid steps are left out where the kind can do so.

        Values outside the range seen in fitting are encoded as the nearest inside it; `Tokens.clipped` tells how many.
        With `max_error`, an ordered tokenizer gives each chunk only as many tokens as it takes to stay within it.
        """
        chunks, valid = self._check_actions(actions, valid_mask)
        given = self._check_state(state, len(chunks))
        wanted = self.to_model_space(chunks, given)
        bounded = wanted.clamp(self.normalizer.low, self.normalizer.high)
        outside = ((bounded - wanted).abs() > 1e-5) & valid[..., None]
        tokens = self.encode_normalized(bounded, valid)
        tokens = Tokens(tokens.ids, tokens.lengths, outside.float().mean((1, 2)))
        if max_error is None:
            return tokens
        tolerance = max_error if isinstance(max_error, MaxError) else MaxError(float(max_error))
        return replace(tokens, lengths=self._shortest_lengths(tokens, chunks, valid, given, tolerance))

    def _shortest_lengths(
        self, tokens: Tokens, chunks: Tensor, valid: Tensor, state: Tensor | None, tolerance: MaxError
    ) -> Int64[Tensor, " batch"]:
        """The smallest prefix of each chunk whose reconstruction is good enough; all prefixes decode in one pass."""
        if not self.prefix_decodable:
            raise InvalidOption(f"{self.kind} has no prefixes: max_error needs an ordered tokenizer")
        batch, most = len(tokens), self.max_tokens
        every = Tokens(
            tokens.ids.repeat_interleave(most, 0), torch.arange(1, most + 1, device=tokens.ids.device).repeat(batch)
        )
        states = None if state is None else state.repeat_interleave(most, 0)
        decoded, _ = self.try_decode(every, state=states)
        errors = tolerance.measure(decoded.reshape(batch, most, *decoded.shape[1:]), chunks[:, None], valid[:, None])
        enough = errors <= tolerance.size
        return torch.where(enough.any(1), enough.int().argmax(1) + 1, most)

    def decode(
        self, tokens: TokenLike, steps: int | None = None, state: Array | None = None, noise: Array | None = None
    ) -> Float[Tensor, "batch steps dim"]:
        """Chunks in action units, or their first `steps` steps; a sequence that does not decode is an error."""
        actions, valid = self.try_decode(tokens, steps, state, noise)
        if not bool(valid.all()):
            self.explain_failure(self._check_tokens(tokens)[~valid])
        return actions

    @torch.no_grad()
    def try_decode(
        self, tokens: TokenLike, steps: int | None = None, state: Array | None = None, noise: Array | None = None
    ) -> tuple[Float[Tensor, "batch steps dim"], Bool[Tensor, " batch"]]:
        """As `decode`, but telling for each row whether it decoded, so that one bad row does not lose the others.

        Rows that did not decode are NaN: no robot can mistake them for actions.
        """
        checked = self._check_tokens(tokens)
        steps = self.action_horizon if steps is None else steps
        if not 1 <= steps <= self.action_horizon:
            raise InvalidOption(f"steps must be in 1…{self.action_horizon}, got {steps}")
        noise, given = self._check_noise(noise, len(checked)), self._check_state(state, len(checked))
        with torch.inference_mode():
            model_space, valid = self.decode_normalized(checked, steps, noise)
        bounded = model_space.clamp(self.normalizer.low, self.normalizer.high)
        actions = self.space.transform.inverse(self.normalizer.denormalize(bounded), given)
        return actions.where(valid[:, None, None], torch.nan), valid.clone()

    def _check_noise(self, noise: Array | None, batch: int) -> Tensor | None:
        if noise is None:
            return None
        given, expected = self._as_tensor(noise), (batch, self.action_horizon, self.space.model_dim)
        assert given is not None
        if not self.uses_noise or given.shape != expected:
            allowed = f"must be {expected}" if self.uses_noise else "is not used by this tokenizer"
            raise InvalidOption(f"noise {allowed}, got {tuple(given.shape)}")
        return given

    def save(self, directory: str | Path) -> None:
        """Write a checkpoint directory that `load` reads anywhere."""
        with staged_checkpoint(Path(directory), self.kind) as staging:
            self.save_files(staging)

    def save_files(self, directory: Path, card: ModelCard | None = None) -> None:
        """Write the checkpoint's files, with this card or its usual one, into an existing directory."""
        described = {"space": config_to_json(self.space), "config": config_to_json(self.config)}
        described |= {"fitted_to": self.training_record.to_json(), **self.text_state()}
        write_checkpoint(directory, self.kind, described, self.state_dict(), card or self.card())

    def card(self) -> ModelCard:
        """What the model card beside a checkpoint says."""
        space, lengths = self.space, "1 … " if self.prefix_decodable or not self.total else ""
        name, chunk = type(self).__name__, f"{space.action_horizon} × {space.action_dim}"
        promises = {True: "Every sequence of valid tokens decodes.", False: "Not every sequence of tokens decodes."}
        ordered = " Every prefix decodes, coarse motion first." if self.prefix_decodable else ""
        return ModelCard(
            title=f"{name}: {chunk} actions as {lengths}{self.max_tokens} tokens",
            about=f"Turns chunks of robot actions into tokens and back. {promises[self.total]}{ordered}",
            load=_LOAD,
            tags=("robotics", "action-tokenizer", self.kind),
            shapes={
                "actions per chunk × numbers per action": chunk,
                "tokens per chunk": f"{lengths}{self.max_tokens}",
                "vocabulary": f"{self.vocab_size:,}",
                "applied before normalisation": f"`{json.dumps(config_to_json(space.transform))}`",
                "parameters": f"{sum(parameter.numel() for parameter in self.parameters()):,}",
                "configuration": f"`{json.dumps(config_to_json(self.config))}`",
            },
            ranges=self.normalizer.ranges(),
            record=self.training_record,
            bits=math.log2(self.vocab_size),
        )

    @classmethod
    def load(cls: type[Kind], directory: str | Path) -> Kind:
        """Read a checkpoint of this kind, or the best one of a run."""
        folder = find_checkpoint(directory)
        described, tensors = load_checkpoint(folder, {cls.kind})
        space = config_from_json(ActionSpace, described["space"])
        config: Any = config_from_json(cls.config_class, described["config"])
        tokenizer = cls(space, config)  # type: ignore[call-arg]  # every kind takes its configuration
        tokenizer.training_record = stored_record(described)
        tokenizer.load_text_state(described)
        try:
            tokenizer.load_state_dict(tensors)
        except RuntimeError as error:
            raise CheckpointError(f"{folder}: its weights do not fit its configuration ({error})") from error
        return tokenizer.eval()

    def text_state(self) -> dict[str, str]:
        """What a checkpoint must hold beside configuration and tensors."""
        return {}

    def load_text_state(self, described: dict[str, Any]) -> None:
        """Take back what `text_state` gave."""

    def explain_failure(self, tokens: Tokens) -> None:
        """Raise the error for rows that did not decode."""
        raise AssertionError(f"{self.kind} is total")

    def to_model_space(
        self, actions: Float[Tensor, "batch time action"], state: Float[Tensor, "batch state"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        """Transformed and normalised actions."""
        return self.normalizer.normalize(self.space.transform.forward(actions, state))

    def _check_actions(self, actions: Array, valid_mask: Array | None) -> tuple[Tensor, Tensor]:
        chunks = torch.as_tensor(actions, dtype=torch.float32, device=self.device)
        expected = (self.action_horizon, self.action_dim)
        if chunks.ndim != 3 or tuple(chunks.shape[1:]) != expected:
            raise InvalidActions(f"actions must be (batch, {expected[0]}, {expected[1]}), got {tuple(chunks.shape)}")
        if not bool(torch.isfinite(chunks).all()):
            row, step, dim = torch.nonzero(~torch.isfinite(chunks))[0].tolist()
            raise InvalidActions(f"actions[{row}, {step}, {dim}] is {float(chunks[row, step, dim])}")
        if valid_mask is None:
            return chunks, torch.ones(chunks.shape[:2], dtype=torch.bool, device=chunks.device)
        valid = torch.as_tensor(valid_mask, dtype=torch.bool, device=chunks.device)
        if valid.shape != chunks.shape[:2]:
            raise InvalidActions(f"valid_mask must be {tuple(chunks.shape[:2])}, got {tuple(valid.shape)}")
        if not bool(valid[:, 0].all()):
            raise InvalidActions("every chunk needs at least its first step to be valid")
        return chunks, valid

    def _check_state(self, state: Array | None, batch: int) -> Tensor | None:
        """The state that the transform refers to; another transform does not look at it."""
        given = self._as_tensor(state)
        if given is None or self.space.transform.state_key is None:
            return given
        dim = self.space.state_dim
        if given.ndim != 2 or len(given) != batch or dim not in (None, given.shape[1]):
            raise InvalidObservation(f"state must be ({batch}, {dim or 'numbers'}), got {tuple(given.shape)}")
        if not bool(torch.isfinite(given).all()):
            row, place = torch.nonzero(~torch.isfinite(given))[0].tolist()
            raise InvalidObservation(f"state[{row}, {place}] is {float(given[row, place])}")
        return given

    def _check_tokens(self, tokens: TokenLike) -> Tokens:
        tokens = as_tokens(tokens).to(self.device)
        wrong = tokens.real & ((tokens.ids < 0) | (tokens.ids >= self.vocab_size))
        if bool(wrong.any()):
            row, place = torch.nonzero(wrong)[0].tolist()
            found = int(tokens.ids[row, place])
            raise InvalidTokens(f"token {place} of row {row} is {found}; ids must be in 0…{self.vocab_size - 1}")
        self.check_lengths(tokens.lengths)
        return Tokens(tokens.ids.where(tokens.real, 0), tokens.lengths)

    def check_lengths(self, lengths: Int64[Tensor, " batch"]) -> None:
        """Raise `InvalidTokens` for lengths that this kind never has."""
        shortest = 1 if self.prefix_decodable else self.max_tokens
        if len(lengths) and not (shortest <= int(lengths.min()) and int(lengths.max()) <= self.max_tokens):
            allowed = f"1…{self.max_tokens}" if self.prefix_decodable else str(self.max_tokens)
            raise InvalidTokens(f"{self.kind} decodes {allowed} tokens, got {int(lengths.min())}…{int(lengths.max())}")

    def _as_tensor(self, array: Array | None) -> Tensor | None:
        if array is None:
            return None
        return torch.as_tensor(array, dtype=torch.float32, device=self.device)
