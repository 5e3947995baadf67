"""Which of several sampled chunks is executed: rules as values, by the costs that they give to samples.

Backward coherence and forward contrast are those of bidirectional decoding (https://arxiv.org/abs/2408.17355). A new
rule is one frozen dataclass with its `costs`, and one line in `CHOOSING_RULES`.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.errors import InvalidOption, unknown_name

if TYPE_CHECKING:
    from oat.policies.predictor import BasePredictor

Costs = Float[Tensor, "rows samples"]
Sampled = Float[Tensor, "rows samples time dim"]

_AGREEING = 4  # one of so many samples, those that fit committed actions best, may still be chosen


@dataclass(frozen=True)
class Previous:
    """Hold what each robot would do from now on if no new chunk came: the rest of its previous one."""

    actions: Float[Tensor, "rows steps dim"]
    """In action units; NaN past the end of a row's chunk, and everywhere in a row that has none."""

    @classmethod
    def of(cls, rests: Sequence[np.ndarray | None], dim: int) -> "Previous":
        """Return the rests of several robots' chunks, which may differ in length; None for a robot without one."""
        longest = max((len(rest) for rest in rests if rest is not None), default=0)
        actions = torch.full((len(rests), longest, dim), torch.nan)
        for row, rest in enumerate(rests):
            if rest is not None:
                actions[row, : len(rest)] = torch.from_numpy(np.array(rest, np.float32))
        return cls(actions)

    def check(self, rows: int, dim: int) -> None:
        """Raise `InvalidOption` where this is not of as many robots, or of other actions."""
        if (len(self.actions), self.actions.shape[-1]) != (rows, dim):
            raise InvalidOption(
                f"the previous actions are {tuple(self.actions.shape)}, expected {rows} rows of {dim}-D actions"
            )

    def padded(self, missing: int) -> "Previous":
        """Return this with the first row as many times more."""
        return Previous(torch.cat([self.actions, self.actions[:1].expand(missing, -1, -1)]))


@dataclass(frozen=True)
class Candidates:
    """Hold the samples among which one is chosen for every row."""

    actions: Sampled
    """Each number divided by the range that it has in the demonstrations, so that all of them count alike."""
    valid: Bool[Tensor, "rows samples"]
    executed: int
    """How many actions of the chosen chunk will be executed, at most."""
    log_probabilities: Float[Tensor, "rows samples"] | None = None
    previous: Float[Tensor, "rows steps dim"] | None = None
    """The rests of the previous chunks, scaled likewise; NaN where there is none."""
    weaker: Float[Tensor, "rows negatives time dim"] | None = None
    """What a weaker policy would do."""


class ChoosingRule(ABC):
    """Give each sample a cost; the one that decodes and costs least is chosen."""

    name: ClassVar[str]
    needs_likelihood: ClassVar[bool] = False
    follows: ClassVar[bool] = False
    """Whether it means something only where a part of the previous chunk is left."""

    @property
    def label(self) -> str:
        """Return what records call the rule, with what is unusual about it: different rules have different names."""
        unusual = [
            f"{each.name.removesuffix('_name')} {_written(getattr(self, each.name))}"
            for each in fields(self)  # type: ignore[arg-type]
            if each.name in self.named and getattr(self, each.name) != each.default
        ]
        return f"{self.name}({', '.join(unusual)})" if unusual else self.name

    named: ClassVar[tuple[str, ...]] = ()
    """The fields that tell apart rules of one kind."""

    @abstractmethod
    def costs(self, candidates: Candidates) -> Costs:
        """Return what each sample costs; those that are not valid are left out afterwards."""

    def check(self, predictor: "BasePredictor") -> None:
        """Raise `InvalidOption` where the rule cannot choose among the chunks of this policy; most always can."""
        return

    def finish(
        self, chosen: Float[Tensor, "rows time dim"], actions: Sampled, valid: Bool[Tensor, "rows samples"]
    ) -> Float[Tensor, "rows time dim"]:
        """Return the chosen chunks as they are executed; usually as they are."""
        return chosen


@dataclass(frozen=True)
class Likelihood(ChoosingRule):
    """Choose the sample whose tokens the policy finds most likely together: best of N."""

    name: ClassVar[str] = "likelihood"
    needs_likelihood: ClassVar[bool] = True

    def costs(self, candidates: Candidates) -> Costs:
        """Return the negative log-likelihoods."""
        assert candidates.log_probabilities is not None
        return -candidates.log_probabilities


@dataclass(frozen=True)
class Medoid(ChoosingRule):
    """Choose the sample that is nearest to all others over the actions that will be executed."""

    name: ClassVar[str] = "medoid"
    named: ClassVar[tuple[str, ...]] = ("binary",)
    binary: tuple[int, ...] = ()
    """Dimensions with two values, such as a gripper's: they do not count in distances, and a majority decides them."""

    def check(self, predictor: "BasePredictor") -> None:
        """Raise `InvalidOption` for a binary dimension that actions do not have."""
        dim = predictor.space.action_dim
        if any(not 0 <= each < dim for each in self.binary):
            raise InvalidOption(f"binary dimensions must be 0…{dim - 1}, got {' '.join(map(str, self.binary))}")

    def costs(self, candidates: Candidates) -> Costs:
        """Return the mean distance to the samples that decode."""
        counted = torch.ones(candidates.actions.shape[-1], device=candidates.actions.device)
        counted[list(self.binary)] = 0.0
        executed = candidates.actions[:, :, : candidates.executed] * counted
        return _mean_distances(executed, executed, candidates.valid)

    def finish(
        self, chosen: Float[Tensor, "rows time dim"], actions: Sampled, valid: Bool[Tensor, "rows samples"]
    ) -> Float[Tensor, "rows time dim"]:
        """Return the chunks with what most samples do in the binary dimensions: their median, of a tie the smaller."""
        if not self.binary:
            return chosen
        known = actions.where(valid[..., None, None], torch.nan)
        majority = known.nanmedian(1).values
        finished = chosen.clone()
        finished[..., list(self.binary)] = majority[..., list(self.binary)]
        return finished


@dataclass(frozen=True)
class Coherent(ChoosingRule):
    """Choose the sample nearest to the rest of the previous chunk; without one, the medoid."""

    name: ClassVar[str] = "coherent"
    named: ClassVar[tuple[str, ...]] = ("decay",)
    follows: ClassVar[bool] = True
    decay: float = 0.5
    """Each step further from now counts for so much of the one before it."""

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise InvalidOption(f"decay must be in (0, 1], got {self.decay}")

    def costs(self, candidates: Candidates) -> Costs:
        """Return the distances to the previous chunks, or of rows without one to the other samples."""
        backward = _distances_to_previous(candidates, self.decay)
        return backward.where(backward.isfinite(), Medoid().costs(candidates))


@dataclass(frozen=True)
class Contrast(ChoosingRule):
    """Choose what is coherent, near to the policy's other samples, and far from those of a weaker policy."""

    name: ClassVar[str] = "contrast"
    named: ClassVar[tuple[str, ...]] = ("weaker_name", "decay")
    weaker: "BasePredictor | None" = None
    """The weaker policy; None takes this one after its first step, where it has a chunk then."""
    weaker_name: str = ""
    """What records call the weaker policy."""
    decay: float = 0.5

    def check(self, predictor: "BasePredictor") -> None:
        """Raise `InvalidOption` where there is no weaker policy, or one that acts or sees otherwise."""
        if self.weaker is None:
            if not predictor.anytime:
                raise InvalidOption("contrast needs a weaker policy here: not every prefix of these tokens decodes")
            return
        theirs = (self.weaker.space.action_horizon, self.weaker.space.action_dim)
        ours = (predictor.space.action_horizon, predictor.space.action_dim)
        if theirs != ours:
            raise InvalidOption(
                f"the weaker policy's chunks are {theirs[0]} × {theirs[1]} numbers, this one's {ours[0]} × {ours[1]}"
            )
        seen = (self.weaker.observed, predictor.observed)
        refers = (self.weaker.reference, predictor.reference)
        if seen[0].sizes() != seen[1].sizes() or seen[0].obs_horizon != seen[1].obs_horizon or refers[0] != refers[1]:
            raise InvalidOption("the weaker policy does not see what this one sees")
        if missing := [task for task in seen[1].tasks if task not in seen[0].tasks]:
            raise InvalidOption(f"the weaker policy does not know the task {missing[0]!r}")

    def costs(self, candidates: Candidates) -> Costs:
        """Return the sum of backward coherence and forward contrast; the first chunk has only the latter."""
        assert candidates.weaker is not None
        ahead = candidates.actions[:, :, : candidates.executed]
        backward = _distances_to_previous(candidates, self.decay)
        near = _mean_distances(ahead, ahead, candidates.valid)
        negatives = candidates.weaker[:, :, : ahead.shape[2]]
        far = _mean_distances(ahead, negatives, negatives.isfinite().all(-1).all(-1))
        return backward.where(backward.isfinite(), 0.0) + near - far


@dataclass(frozen=True)
class Guided(ChoosingRule):
    """Let the samples go on that agree best with the previous chunk while tokens are chosen; then take the medoid.

    After some tokens, the worse half of a row's samples goes on from the tokens of the better half, with noise of its
    own: every prefix is a whole chunk, whose first actions show whether it fits what is executed meanwhile.
    """

    name: ClassVar[str] = "guided"
    named: ClassVar[tuple[str, ...]] = ("after",)
    follows: ClassVar[bool] = True
    after: tuple[int, ...] = (1, 2, 4)
    """Numbers of tokens after which samples are compared; later ones change little, and each comparison costs time."""

    def check(self, predictor: "BasePredictor") -> None:
        """Raise `InvalidOption` for a policy without tokens whose every prefix decodes."""
        if not predictor.anytime or "num_tokens" not in predictor.options:
            raise InvalidOption("guided needs tokens whose every prefix decodes, and this policy has none")

    def costs(self, candidates: Candidates) -> Costs:
        """Return the mean distances to the other samples."""
        return MEDOID.costs(candidates)

    def survivors(self, candidates: Candidates, commit: int) -> Int64[Tensor, "rows samples"]:
        """Return the number of the sample from which each one goes on; the better half goes on from itself.

        Agreement is over the committed actions, or without any over the rest of the previous chunk.
        """
        distances = _distances_to_previous(candidates, 1.0 if commit else Coherent.decay, commit or None)
        # Stable: copies are equally far, and every runtime must take the same ones.
        best = distances.argsort(dim=1, stable=True)
        places = best.argsort(dim=1)
        kept = math.ceil(best.shape[1] / 2)
        goes_on = best.gather(1, places.where(places < kept, places - kept))
        # Rows without a previous chunk have nothing to agree with.
        return goes_on.where(distances.isfinite(), torch.arange(best.shape[1], device=best.device))


MEDOID = Medoid()
"""What chooses unless a caller says otherwise: it needs nothing but the samples."""

CHOOSING_RULES: dict[str, type[ChoosingRule]] = {
    "likelihood": Likelihood,
    "medoid": Medoid,
    "coherent": Coherent,
    "contrast": Contrast,
    "guided": Guided,
}


def make_choosing_rule(
    name: str, binary: tuple[int, ...] = (), weaker: "BasePredictor | None" = None, weaker_name: str = ""
) -> ChoosingRule:
    """Return a rule by its name, or raise `UnknownName`, or `InvalidOption` for an option that it does not have."""
    if name not in CHOOSING_RULES:
        raise unknown_name("choosing rule", name, CHOOSING_RULES)
    if binary and name != Medoid.name:
        raise InvalidOption(f"a majority in binary dimensions belongs to medoid, got {name}")
    if weaker is not None and name != Contrast.name:
        raise InvalidOption(f"a weaker policy belongs to contrast, got {name}")
    if name == Medoid.name:
        return Medoid(binary)
    return Contrast(weaker, weaker_name) if name == Contrast.name else CHOOSING_RULES[name]()


def choose(rule: ChoosingRule, candidates: Candidates, commit: int) -> Int64[Tensor, " rows"]:
    """Return the number of each row's best sample: of those that decode, and agree with what is committed.

    With `commit`, a quarter of the samples stays, those whose first actions are nearest to the previous chunk's.
    """
    costs = rule.costs(candidates)
    if commit and candidates.previous is not None:
        distances = _distances_to_previous(candidates, 1.0, commit)
        distances = distances.where(candidates.valid, torch.inf)
        kept = math.ceil(distances.shape[1] / _AGREEING)
        limit = distances.sort(1).values[:, kept - 1 : kept]
        # Rows without a previous chunk have no distances, and nothing that they are committed to.
        costs = costs.masked_fill(distances.isfinite() & (distances > limit), torch.inf)
    return costs.masked_fill(~candidates.valid, torch.inf).argmin(1)


def _written(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _distances_to_previous(candidates: Candidates, decay: float, steps: int | None = None) -> Costs:
    """Return the mean distance of each sample to the rest of the previous chunk; infinite in rows without one."""
    actions = candidates.actions
    if candidates.previous is None or candidates.previous.shape[1] == 0:
        return torch.full(actions.shape[:2], torch.inf, device=actions.device)
    shared = min(candidates.previous.shape[1], actions.shape[2], steps or actions.shape[2])
    gaps = (actions[:, :, :shared] - candidates.previous[:, None, :shared]).norm(dim=-1)
    weights = decay ** torch.arange(shared, device=actions.device, dtype=actions.dtype)
    known = candidates.previous[:, None, :shared].isfinite().all(-1)
    weights = (weights * known).expand_as(gaps)
    total = (gaps.nan_to_num() * weights).sum(-1) / weights.sum(-1)
    return total.nan_to_num(nan=torch.inf)


def _mean_distances(
    samples: Sampled, others: Float[Tensor, "rows others time dim"], counted: Bool[Tensor, "rows others"]
) -> Costs:
    """Return each sample's mean distance, over steps, to those of the others that count; itself is at distance 0."""
    gaps = (samples[:, :, None] - others[:, None]).norm(dim=-1).mean(-1)
    known = counted[:, None].expand_as(gaps)
    return gaps.where(known, 0.0).sum(-1) / known.sum(-1).clamp_min(1)
