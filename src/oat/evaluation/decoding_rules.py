"""Rules of choosing and stopping, from how the command line names them."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, runtime_checkable

from oat.errors import InvalidOption, unknown_name
from oat.evaluation.records import find_records, read_records
from oat.io.checkpoints import find_checkpoint, fingerprint
from oat.policies import load_policy
from oat.policies.choosing import ChoosingRule, make_choosing_rule
from oat.policies.error_head import ErrorHead
from oat.policies.stopping import DEPTH_RULES, DepthRule, Fixed, RandomDepth, Residual, Value

MATCHED = "matched"
"""Names no rule of its own: depths are drawn at random as another evaluation had them."""
_WITH_HEAD = ("residual", "value")


@runtime_checkable
class ChoosesAmongSamples(Protocol):
    """Describe what commands that choose among samples are told."""

    @property
    def samples(self) -> int:
        """Return how many chunks are drawn."""
        ...

    @property
    def choose(self) -> str:
        """Return the rule's name."""
        ...

    @property
    def weaker(self) -> Path | None:
        """Return the weaker policy, if one is named."""
        ...

    @property
    def binary(self) -> tuple[int, ...]:
        """Return the dimensions with two values."""
        ...


def choosing_rule(config: ChoosesAmongSamples) -> ChoosingRule:
    """Return the rule that the options describe, with the weaker policy loaded."""
    if config.samples == 1 and (config.weaker is not None or config.binary):
        raise InvalidOption("--weaker and --binary choose among several samples: add --samples")
    weaker = None if config.weaker is None else load_policy(config.weaker)
    name = "" if config.weaker is None else fingerprint(find_checkpoint(config.weaker))
    return make_choosing_rule(config.choose, config.binary, weaker, name)


def stopping_rules(named: Sequence[str], head: Path | None) -> tuple[DepthRule, ...]:
    """Return the rules that are named, such as residual=0.02, with the head that some of them need."""
    if head is not None and not any(each.split("=")[0] in _WITH_HEAD for each in named):
        raise InvalidOption(f"a stopping head is for --stop {' or '.join(_WITH_HEAD)}")
    loaded = None if head is None else ErrorHead.load(head)
    return tuple(_stopping_rule(each, loaded) for each in named)


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
    if value.endswith("%") and name not in _WITH_HEAD:
        raise InvalidOption(f"a percentage is for --stop {' or '.join(_WITH_HEAD)}, got {named!r}")
    if name == "random":
        return RandomDepth(tuple(percent / 100 for percent in numbers))
    if name == "fixed":
        if not numbers[0].is_integer():
            raise InvalidOption(f"--stop fixed needs a whole number of tokens, got {value}")
        return Fixed(int(numbers[0]))
    if name not in _WITH_HEAD:
        return DEPTH_RULES[name](*numbers)
    if head is None:
        raise InvalidOption(f"--stop {name} needs --head, which oat calibrate makes")
    share = numbers[0] / 100 if value.endswith("%") else None
    if name == "residual":
        return Residual(numbers[0] if share is None else head.tolerance(share), head)
    return Value(numbers[0] if share is None else head.price(share), head)


def count_depths(folder: Path) -> Counter[int]:
    """Return how many chunks of an evaluation had how many tokens."""
    return Counter(tokens for record in read_records(find_records(folder)) for tokens in record.chunk_tokens)
