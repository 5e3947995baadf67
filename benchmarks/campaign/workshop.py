"""What the trials work on, made once for a campaign: data sets in every format, tokenizers, policies, exports."""

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.campaign.children import call
from benchmarks.campaign.trial import Place
from oat.cli import main
from oat.encoding.config import EncodeConfig
from oat.encoding.run import encode_dataset
from oat.export.export import export_policy
from oat.io.training_record import TrainingRecord
from oat.tokenizers import TOKENIZERS
from tests.datasets import WRITERS, make_episodes, write_lerobot
from tests.policies.small import policy_of
from tests.tokenizers.fitted import DIM, fitted

TOKEN_POLICIES = ("bin", "quest", "oat")
"""Token policies that can be exported; FAST's decoding is no graph."""
EXPORTED = (*TOKEN_POLICIES, "diffusion", "regression")
POLICY_KINDS = ("fast", *EXPORTED)
_PATIENCE = 600.0


def item(place: Place, name: str) -> Path:
    """Return something of the workshop by name, which is made if it is not there yet."""
    made = place.workshop / name
    if not made.exists():
        half = place.workshop / f"half-{os.getpid()}-{name}"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        ended = call(partial(_build, name, half), _PATIENCE)
        assert ended.status == 0, f"cannot make {name}: {ended.output}"
        half.rename(made)
    return made


def _build(name: str, folder: Path) -> None:
    sort, _, which = name.partition("-")
    _BUILDERS[sort](which, folder)


def _tokenizer(kind: str, folder: Path) -> None:
    fitted(kind).save(folder / "checkpoint")


def _policy(kind: str, folder: Path) -> None:
    policy = policy_of(kind)
    policy.training_record = TrainingRecord(seed=4)
    policy.save(folder / "checkpoint")


def _export(kind: str, folder: Path) -> None:
    _policy(kind, folder)
    export_policy(folder / "checkpoint", folder / "export")
    shutil.rmtree(folder / "checkpoint")


def _set(name: str, folder: Path) -> None:
    if name in DIGESTED:
        write_lerobot(folder / "set", make_episodes(6), DIGESTED[name], digests=True)
    else:
        WRITERS[name](folder, make_episodes(6))


def _encoded(kind: str, folder: Path) -> None:
    """Make a set of tokens in several parts."""
    fitted(kind).save(folder / "checkpoint")
    data = WRITERS["npz"](folder, make_episodes(12, action_dim=DIM))
    encode_dataset(EncodeConfig(data, folder / "checkpoint", folder / "tokens", part_size=40, workers=1))


def _study(_: str, folder: Path) -> None:
    """Make what commands work on: demonstrations, a tokenizer, a policy and its records."""
    os.environ["OAT_CACHE_DIR"] = str(folder / "cache")
    os.chdir(folder)
    for command in (
        "collect detour --tasks detour --episodes 6 --workers 1 --out demos",
        "fit --data demos --preset tiny --action-horizon 16 --steps 4 --out oat",
        "train --data demos --tokenizer oat --preset tiny --steps 4 --out policy",
        "encode demos --tokenizer oat --no-errors --part-size 50 --workers 1 --out tokens",
        "eval policy --sim detour --episodes 2 --workers 1 --num-tokens 1 8 --out records",
    ):
        main(command.split())
    generator = np.random.default_rng(0)
    states = generator.normal(size=(8_000, 4)).astype(np.float32)
    actions = generator.normal(size=(8_000, 2)).astype(np.float32)
    np.savez(folder / "many.npz", actions=actions, state=states, episode_ends=np.arange(200, 8_001, 200))


DIGESTED = {"lerobot-image-ours": "image", "lerobot-video-ours": "video"}
"""Data sets with the digests that our writer adds, and how their cameras are stored."""
_BUILDERS: dict[str, Callable[[str, Path], None]] = {
    "tokenizer": _tokenizer,
    "policy": _policy,
    "export": _export,
    "set": _set,
    "encoded": _encoded,
    "study": _study,
}
TOKENIZER_KINDS = tuple(TOKENIZERS)
SETS = (*WRITERS, *DIGESTED)
