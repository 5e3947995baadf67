"""Tokenizers that come with the package: small, fitted, and made by `scripts/make-tokenizers.sh`."""

from dataclasses import dataclass
from pathlib import Path

from oat.errors import unknown_name
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.loading import load_tokenizer

_FOLDER = Path(__file__).with_name("ready_made_checkpoints")


@dataclass(frozen=True)
class ReadyMade:
    """Say what a tokenizer of the package is for, and under which licences it may be used."""

    about: str
    """The actions that it encodes."""
    licence: str


READY_MADE = {
    "metaworld": ReadyMade(
        "MetaWorld's 50 tasks: three displacements of the hand, and the gripper",
        "Apache-2.0; the demonstrations are of the experts in metaworld 3.1.1 (MIT, by the LICENSE that it installs)",
    ),
    "pusht": ReadyMade(
        "PushT: the two coordinates that the pusher goes to, in pixels",
        "Apache-2.0; the demonstrations are those that the README of real-stanford/diffusion_policy links to "
        "(that repository's LICENSE is MIT; the data have none of their own there)",
    ),
    "robosuite": ReadyMade(
        "end-effector actions in robosuite, from Lift, Can and Square with a Panda, UR5e, IIWA and Kinova3: the hand's "
        "motion and turn, and the gripper",
        "Apache-2.0; the demonstrations are of this project's own scripts, "
        "in robosuite 1.5.2 (MIT, by the LICENSE that it installs)",
    ),
}


def path_of(name: str) -> Path:
    """Return where a tokenizer of the package lies; raise `UnknownName`, which lists the known ones."""
    if name not in READY_MADE:
        raise unknown_name("tokenizer of this package", name, READY_MADE)
    return _FOLDER / name


def get_tokenizer(name: str) -> BaseTokenizer:
    """Return a tokenizer that comes with the package, such as "metaworld"; `oat tokenizers` lists them."""
    return load_tokenizer(path_of(name))


def find_tokenizer(path: str | Path) -> BaseTokenizer:
    """Return the tokenizer of a checkpoint or run, or, where there is none, the one of the package by that name."""
    given = Path(path).expanduser()
    taken = given.exists() or str(path) not in READY_MADE
    return load_tokenizer(given) if taken else get_tokenizer(str(path))


def names_for(action_dim: int) -> list[str]:
    """Return the tokenizers of the package that are for actions of this many numbers."""
    return [name for name in READY_MADE if get_tokenizer(name).action_dim == action_dim]
