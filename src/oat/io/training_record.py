"""Records of how a checkpoint was made: data, split, recipe, command, and its measures on held-out data.

`TrainingRecord` and `Measures` are what stages hand each other. Only here do they become JSON and are read back: in
config.json measures have flat names, such as "mse_3" for the error of three tokens.
"""

import dataclasses
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from oat.errors import CheckpointError

_NUMBERED = re.compile(r"(mse|nll|accuracy)_(\d+)")


@dataclass(frozen=True)
class Measures:
    """Hold the measures of a model on held-out chunks; None or empty where its kind has no such measure."""

    score: float | None = None
    """Number that decides which checkpoint of a run is the best; smaller is better."""
    tokens: float | None = None
    """Mean tokens per chunk, where that varies."""
    mse: float | None = None
    """Mean squared error in model space: of a tokenizer's reconstruction or of a policy's prediction."""
    usual_error: float | None = None
    """Error that 99 % of the chunks stay below, with all their tokens: what is above it is unlike them."""
    undecodable: float | None = None
    """Share of a policy's chunks that do not decode."""
    nll_of_chunk: float | None = None
    """Negative log-likelihood of a chunk's tokens under a policy, in nats."""
    mse_of_prefix: Mapping[int, float] = field(default_factory=dict)
    """Mean squared error in model space, by the number of tokens that are decoded."""
    nll_of_token: Mapping[int, float] = field(default_factory=dict)
    """Negative log-likelihood by position, the first token being 1."""
    accuracy_of_token: Mapping[int, float] = field(default_factory=dict)
    """Share of chunks whose most likely token is the right one, by position."""
    others: Mapping[str, float] = field(default_factory=dict)
    """Measures that only one kind of model has, by name."""

    def error(self, num_tokens: int | None = None) -> float | None:
        """Return the error of a prefix, or of whole chunks; None where it was not measured."""
        if num_tokens is not None:
            return self.mse_of_prefix.get(num_tokens, self.mse)
        whole = max(self.mse_of_prefix, default=None)
        return self.mse if whole is None else self.mse_of_prefix[whole]

    def to_json(self) -> dict[str, float]:
        """Return the measures under the flat names that logs and config.json use, without those that are missing."""
        single = {
            "score": self.score,
            "tokens": self.tokens,
            "mse": self.mse,
            "usual_error": self.usual_error,
            "nll_chunk": self.nll_of_chunk,
            "undecodable": self.undecodable,
        }
        numbered = {"mse": self.mse_of_prefix, "nll": self.nll_of_token, "accuracy": self.accuracy_of_token}
        return {
            **{name: value for name, value in single.items() if value is not None},
            **{f"{name}_{place}": value for name, values in numbered.items() for place, value in values.items()},
            **self.others,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> "Measures":
        """Return the measures that `to_json` described; raise `CheckpointError` for what is not a number."""
        single: dict[str, float] = {}
        numbered: dict[str, dict[int, float]] = {"mse": {}, "nll": {}, "accuracy": {}}
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise CheckpointError(f"the measure {name!r} must be a number, got {value!r}")
            match = _NUMBERED.fullmatch(name)
            if match:
                numbered[match[1]][int(match[2])] = float(value)
            else:
                single[name] = float(value)
        return cls(
            score=single.pop("score", None),
            tokens=single.pop("tokens", None),
            mse=single.pop("mse", None),
            usual_error=single.pop("usual_error", None),
            nll_of_chunk=single.pop("nll_chunk", None),
            undecodable=single.pop("undecodable", None),
            mse_of_prefix=numbered["mse"],
            nll_of_token=numbered["nll"],
            accuracy_of_token=numbered["accuracy"],
            others=single,
        )


@dataclass(frozen=True)
class TrainingRecord:
    """Hold how a tokenizer was fitted or a policy trained; None where nobody noted it."""

    data: str | None = None
    """Path of the demonstrations, or a description of them."""
    episodes: int | None = None
    frames: int | None = None
    tasks: int | None = None
    validation: float | None = None
    """Share of the episodes that was held out."""
    seed: int | None = None
    """Seed of the split and of the training."""
    command: str | None = None
    """Command or call that makes the model again."""
    normalization: str | None = None
    demonstrator: str | None = None
    """Who demonstrated: "scripted", "human", or "unknown"."""
    recipe: Mapping[str, Any] | None = None
    """The training configuration, as JSON."""
    step: int | None = None
    """Training steps that were taken."""
    measures: Measures | None = None

    def split(self) -> tuple[float, int]:
        """Return the share of episodes that was held out and the seed that chose them, or the usual ones."""
        return (0.1 if self.validation is None else self.validation), self.seed or 0

    def usual_error(self) -> float | None:
        """Return the error that nearly all held-out chunks stayed below; None where nobody measured it."""
        return None if self.measures is None else self.measures.usual_error

    def updated(self, later: "TrainingRecord") -> "TrainingRecord":
        """Return this record with everything that the later one notes."""
        noted = {each.name: getattr(later, each.name) for each in dataclasses.fields(later)}
        return dataclasses.replace(self, **{name: value for name, value in noted.items() if value is not None})

    def to_json(self) -> dict[str, Any]:
        """Return what config.json holds of it: everything that was noted."""
        described = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        if self.measures is not None:
            described["measures"] = self.measures.to_json()
        return {name: value for name, value in described.items() if value is not None}

    @classmethod
    def from_json(cls, values: Any) -> "TrainingRecord":
        """Return the record that `to_json` described; raise `CheckpointError` for a value of another type.

        Names that are not known are passed over: a newer version may have noted more.
        """
        if not isinstance(values, Mapping):
            raise CheckpointError(f"the training record must be an object, got {values!r}")
        known: dict[str, Any] = {}
        for name, allowed in _TYPES.items():
            value = values.get(name)
            if value is None:
                continue
            # In Python a bool is an int, but no field of the record is a truth value.
            if isinstance(value, bool) or not isinstance(value, allowed):
                raise CheckpointError(f"{name!r} of the training record cannot be {value!r}")
            known[name] = value
        if "measures" in known:
            known["measures"] = Measures.from_json(known["measures"])
        return cls(**known)


_TYPES: dict[str, type | tuple[type, ...]] = {
    "data": str,
    "episodes": int,
    "frames": int,
    "tasks": int,
    "validation": (int, float),
    "seed": int,
    "command": str,
    "normalization": str,
    "demonstrator": str,
    "recipe": Mapping,
    "step": int,
    "measures": Mapping,
}
"""Types that JSON may have for each field of a `TrainingRecord`."""


def stored_record(config: Mapping[str, Any]) -> TrainingRecord:
    """Return the record inside a checkpoint's config.json: "fitted_to" of a tokenizer, "trained_on" of a policy."""
    return TrainingRecord.from_json(config.get("trained_on") or config.get("fitted_to") or {})
