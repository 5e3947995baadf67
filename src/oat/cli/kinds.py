"""The options of the verbs whose options depend on a kind: what `--tokenizer` and `--preset` say is looked at first.

The parser is then made from that kind's own configuration with the preset's values as defaults, so that the help of
`oat fit --tokenizer fast` shows FAST's options and no others.
"""

import argparse
import inspect
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import tyro

from oat.errors import InvalidOption
from oat.policies import POLICIES
from oat.tokenizers import TOKENIZERS
from oat.training.config import (
    FitConfig,
    TrainPolicyConfig,
    options_of_kind,
    options_of_policy,
    refused_option,
    refused_policy_option,
)

_MARKERS = (tyro.conf.OmitArgPrefixes, tyro.conf.AvoidSubcommands, tyro.conf.OmitSubcommandPrefixes)


def fit_verb(action: Callable[[FitConfig], None], words: Sequence[str] = ()) -> Callable[..., None]:
    """Return `oat fit` with the options of the kind and preset that these words choose."""
    kind = _chosen(words, "tokenizer", FitConfig.tokenizer)
    TOKENIZERS.check(kind)
    _refuse_others(kind, words, TOKENIZERS, options_of_kind, refused_option)
    usual = FitConfig.of(Path(), Path(), kind, _chosen(words, "preset", FitConfig.preset))
    others = ", ".join(f"--tokenizer {other}" for other in TOKENIZERS if other != kind)
    return _verb(action, FitConfig, usual, f"These are the options of --tokenizer {kind}; {others} have their own.")


def train_verb(action: Callable[[TrainPolicyConfig], None], words: Sequence[str] = ()) -> Callable[..., None]:
    """Return `oat train` with the options of the kind and preset that these words choose."""
    kind = _chosen(words, "policy", TrainPolicyConfig.policy)
    POLICIES.check(kind)
    _refuse_others(kind, words, POLICIES, options_of_policy, refused_policy_option)
    usual = TrainPolicyConfig.of(Path(), Path(), _chosen(words, "preset", TrainPolicyConfig.preset), kind)
    others = ", ".join(f"--policy {other}" for other in POLICIES if other != kind)
    return _verb(
        action, TrainPolicyConfig, usual, f"These are the options of --policy {kind}; {others} have their own."
    )


def _verb(action: Callable[[Any], None], config_class: type, usual: Any, note: str) -> Callable[..., None]:
    """Return a function for tyro whose one argument has this class and these defaults."""

    for required in ("data", "out"):  # tyro's sign of a required value is not a path, which the class asks for
        object.__setattr__(usual, required, tyro.MISSING)

    def verb(config: Annotated[config_class, *_MARKERS] = usual) -> None:  # type: ignore[valid-type]
        action(config)

    verb.__doc__ = f"{inspect.getdoc(action)}\n\n{note}"
    return verb


def _chosen(words: Sequence[str], name: str, usual: str) -> str:
    """Return what the words say an option is, or what it usually is."""
    parser = argparse.ArgumentParser("oat", add_help=False, allow_abbrev=False)
    parser.add_argument(f"--{name}", default=usual)
    known, _ = parser.parse_known_args(list(words))
    return str(getattr(known, name))


def _refuse_others(
    kind: str,
    words: Sequence[str],
    kinds: Iterable[str],
    options: Callable[[str], set[str]],
    refused: Callable[[str, str], InvalidOption],
) -> None:
    """Raise `InvalidOption`, in one line, for an option that only other kinds have."""
    foreign = {name for other in kinds for name in options(other)} - options(kind)
    for word in words:
        name = word.split("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")
        if word.startswith("--") and name in foreign:
            raise refused(kind, name)
