"""How a policy decodes, from how commands are told: options, and rules of choosing and stopping by their names."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from oat.errors import InvalidOption, unknown_name
from oat.evaluation.config import DecodingName
from oat.evaluation.records import find_records, read_records
from oat.io.checkpoints import find_checkpoint, fingerprint
from oat.policies import load_policy
from oat.policies.choosing import ChoosingRule, Medoid, make_choosing_rule
from oat.policies.decoding import Decoding, DecodingOptions, SampledDecoding, each_position
from oat.policies.error_head import ErrorHead
from oat.policies.predictor import BasePredictor
from oat.policies.stopping import DEPTH_RULES, DepthRule, Fixed, Hindsight, RandomDepth, Residual, Value

MATCHED = "matched"
"""Names no rule of its own: depths are drawn at random as another evaluation had them."""
_WITH_HEAD = ("residual", "value")
_IN_PERCENT = (*_WITH_HEAD, "hindsight")  # of what a head has seen on held-out chunks


@runtime_checkable
class DecodingFlags(Protocol):
    """Describe what every command that lets a policy decode is told of it, beside how many tokens and when to stop."""

    @property
    def decoding(self) -> DecodingName:
        """Return how tokens become a chunk."""
        ...

    @property
    def temperature(self) -> float | tuple[float, ...] | None:
        """Return what divides the logits, for all tokens or for each; None as the policy was trained for."""
        ...

    @property
    def top_k(self) -> int | tuple[int, ...]:
        """Return how many of the most likely tokens are sampled among, 0 for all."""
        ...

    @property
    def greedy(self) -> bool:
        """Return whether the most likely token is always taken."""
        ...

    @property
    def remainder(self) -> bool:
        """Return whether the remainder is insisted on."""
        ...

    @property
    def denoising_steps(self) -> int | None:
        """Return the denoising steps of a diffusion policy, if not the usual number."""
        ...

    @property
    def samples(self) -> int:
        """Return how many chunks are drawn."""
        ...

    @property
    def choose(self) -> str:
        """Return the name of the rule that chooses among them."""
        ...

    @property
    def weaker(self) -> Path | None:
        """Return the weaker policy, if one is named."""
        ...

    @property
    def binary(self) -> tuple[int, ...]:
        """Return the dimensions with two values."""
        ...

    @property
    def commit(self) -> int:
        """Return how many of the first actions must agree with the previous chunk."""
        ...

    @property
    def head(self) -> Path | None:
        """Return the stopping head, if one is named."""
        ...


def choose_decodings(
    flags: DecodingFlags,
    policy: BasePredictor,
    num_tokens: tuple[int | None, ...],
    stop: Sequence[str],
    num_actions: int | None = None,
) -> list[Decoding]:
    """Return what the flags ask for, refusing those that mean nothing to this kind of policy."""
    if flags.decoding != "usual" and "num_tokens" not in policy.options:
        raise InvalidOption(
            f"a policy of the kind {policy.kind} {policy.has_no}: leave out --decoding {flags.decoding}"
        )
    if flags.decoding == "paper":
        _refuse_beside_paper(flags, stop)
        return policy.decodings(DecodingOptions.paper(num_tokens, num_actions))
    if flags.decoding == "tokens" and flags.remainder:
        raise InvalidOption("--decoding tokens is without a remainder: leave out --remainder")
    top_k = tuple(each or None for each in each_position(flags.top_k))
    options = DecodingOptions(
        num_tokens=num_tokens,
        temperature=flags.temperature,
        top_k=top_k if isinstance(flags.top_k, tuple) else top_k[0],
        greedy=flags.greedy or None,
        num_actions=num_actions,
        remainder=False if flags.decoding == "tokens" else flags.remainder or None,
        denoising_steps=flags.denoising_steps,
        samples=flags.samples,
        choose=_choosing_rule(flags),
        commit=flags.commit,
        stop=stopping_rules(stop, flags.head),
    )
    return policy.decodings(options)


def _refuse_beside_paper(flags: DecodingFlags, stop: Sequence[str]) -> None:
    """Raise `InvalidOption` for what the paper's decoding settles: all but the number of tokens."""
    usual = {each.name: each.default for each in fields(type(flags))}  # type: ignore[arg-type]
    names = (
        *("temperature", "top_k", "greedy", "remainder", "denoising_steps"),
        *("samples", "choose", "weaker", "binary", "head", "commit"),
    )
    chosen = [f"--{name.replace('_', '-')}" for name in names if getattr(flags, name) != usual[name]]
    chosen += ["--stop"] if stop else []
    if chosen:
        raise InvalidOption(f"--decoding paper settles how tokens are chosen: leave out {', '.join(chosen)}")


def executing(decoding: Decoding, policy: BasePredictor, execute: int) -> Decoding:
    """Return the decoding with what it must know of the execution, refusing a rule that is not for it."""
    if not (isinstance(decoding, SampledDecoding) and decoding.looks_at_execution):
        return decoding
    told = replace(decoding, executed=min(execute, policy.space.action_horizon))
    policy.check_decoding(told)
    return told


def _choosing_rule(flags: DecodingFlags) -> ChoosingRule:
    """Return the rule that the flags describe, with the weaker policy loaded."""
    if flags.samples == 1 and (flags.weaker is not None or flags.binary or flags.choose != Medoid.name):
        raise InvalidOption("--choose, --weaker and --binary are for several samples: add --samples 8")
    weaker = None if flags.weaker is None else load_policy(flags.weaker)
    name = "" if flags.weaker is None else fingerprint(find_checkpoint(flags.weaker))
    return make_choosing_rule(flags.choose, flags.binary, weaker, name)


def stopping_rules(named: Sequence[str], head: Path | None) -> tuple[DepthRule, ...]:
    """Return the rules that are named, such as residual=0.02, with the head that some of them need."""
    if head is not None and not any(_needs_head(each) for each in named):
        raise InvalidOption(f"a stopping head is for --stop {' or '.join(_WITH_HEAD)}, or a percentage")
    loaded = None if head is None else ErrorHead.load(head)
    return tuple(_stopping_rule(each, loaded) for each in named)


def _needs_head(named: str) -> bool:
    return named.endswith("%") or named.partition("=")[0] in _WITH_HEAD


def _stopping_rule(named: str, head: ErrorHead | None) -> DepthRule:
    name, _, value = named.partition("=")
    if name == MATCHED:
        return RandomDepth.like(count_depths(Path(value)))
    if name not in DEPTH_RULES:
        raise unknown_name("stopping rule", name, (*DEPTH_RULES, MATCHED))
    try:
        numbers = [float(each) for each in value.removesuffix("%").split("/")]
    except ValueError as error:
        raise InvalidOption(f"--stop {name} needs a number, such as {name}=2, got {named!r}") from error
    if value.endswith("%") and name not in _IN_PERCENT:
        raise InvalidOption(f"a percentage is for --stop {' or '.join(_IN_PERCENT)}, got {named!r}")
    if name == "random":
        return RandomDepth(tuple(percent / 100 for percent in numbers))
    if len(numbers) > 1:
        raise InvalidOption(f"--stop {name} needs one number, got {named!r}")
    if name == "fixed":
        if not numbers[0].is_integer():
            raise InvalidOption(f"--stop fixed needs a whole number of tokens, got {value}")
        return Fixed(int(numbers[0]))
    if not _needs_head(named):
        return DEPTH_RULES[name](*numbers)
    if head is None:
        raise InvalidOption(f"--stop {named} needs --head, which oat calibrate makes")
    share = numbers[0] / 100 if value.endswith("%") else None
    if name == "hindsight":
        return Hindsight(numbers[0] if share is None else head.part_of_first(share))
    if name == "residual":
        return Residual(numbers[0] if share is None else head.tolerance(share), head)
    return Value(numbers[0] if share is None else head.price(share), head)


def count_depths(folder: Path) -> Counter[int]:
    """Return how many chunks of an evaluation had how many tokens."""
    return Counter(tokens for record in read_records(find_records(folder)) for tokens in record.chunk_tokens)
