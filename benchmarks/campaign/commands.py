"""The commands that are interrupted: how each is begun and continued, and what it must have made in the end."""

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from oat.cli import main
from oat.data.episodes import open_dataset
from oat.evaluation.records import RECORDS_FILE, read_records
from oat.policies import load_policy
from oat.robots.trials.log import TrialLog
from oat.tokenizers.loading import load_tokenizer

Digest = Callable[[Path], Any]


@dataclass(frozen=True)
class Command:
    """Describe a command whose output is `made` in the folder where it runs; `study` holds its inputs."""

    words: str
    result: Digest
    """Returns what was made, as JSON that two equal results share."""
    again: str = ""
    """What is added to continue."""
    look: Digest = lambda folder: None
    """Checks what an interruption leaves; it raises for what is half-written."""
    appends: bool = False
    """Whether a set is there before."""
    refusal: str = ""
    """What it says instead of succeeding where it was killed only after it had finished."""

    def complete(self, status: int, output: str) -> bool:
        """Return whether everything is made, by how a run of it ended."""
        return status == 0 or (status == 1 and bool(self.refusal) and self.refusal in output)


def run(command: Command, study: Path, folder: Path, again: bool) -> None:
    """Run a command as the console script would, in its folder and with a cache of its own."""
    os.environ["OAT_CACHE_DIR"] = str(folder / "cache")
    os.chdir(folder)
    words = command.words.format(study=study).split()
    sys.argv = ["oat", *words, *(command.again.split() if again else ())]
    main()


def prepare(command: Command, study: Path, folder: Path) -> None:
    """Put what must be there before a command into its folder."""
    if command.appends:
        shutil.copytree(study / "demos", folder / "made")


def weights(folder: Path) -> dict[str, str]:
    """Return the digests of a run's checkpoints and the steps that it logged."""
    made = folder / "made"
    steps = [json.loads(line)["step"] for line in (made / "metrics.jsonl").read_text().splitlines()]
    hashes = {name: _sha(made / name / "model.safetensors") for name in ("best", "last")}
    return {**hashes, "steps": str(steps)}


def _sha(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def episodes_of(folder: Path) -> list[str]:
    """Return a digest of every episode of the set that was made."""
    episodes = open_dataset(folder / "made")
    columns = [episodes.actions, *(column for _, column in sorted(episodes.observations.items()))]
    digests = []
    for start, end in zip(episodes.starts, episodes.ends, strict=True):
        rows = np.arange(start, end)
        digests.append(hashlib.sha256(b"".join(np.ascontiguousarray(c[rows]).tobytes() for c in columns)).hexdigest())
    return digests


def parts(folder: Path) -> dict[str, str]:
    """Return a digest of every file of tokens or actions that is there, each of which must be whole."""
    files = sorted((folder / "made" / "data").glob("part-*.parquet"))
    for file in files:
        pq.read_table(file)
    return {file.name: _sha(file) for file in files}


def records(folder: Path) -> list[str]:
    """Return the records of an evaluation without how long they took; an episode may not be there twice."""
    found = read_records(folder / "made" / RECORDS_FILE)
    return sorted(str(replace(each, inference_ms_p50=None, inference_ms_p95=None)) for each in found)


def page(folder: Path) -> bool:
    """Return whether a page is there, which must then be whole."""
    assert (folder / "made").read_text("utf-8").rstrip().endswith("</html>"), "the page is cut short"
    return True


def judged(folder: Path) -> list[str]:
    """Return the trials that were judged, and how often: each must be once."""
    log = TrialLog.read(folder / "made")
    return sorted(f"{trial} {record.verdict}" for trial, record in log.judged.items())


def _if_there(digest: Digest) -> Digest:
    return lambda folder: digest(folder) if (folder / "made").exists() else None


def _loads(load: Callable[[Path], object]) -> Digest:
    """Return a check that every checkpoint that is there can be loaded."""

    def look(folder: Path) -> None:
        for name in ("best", "last"):
            if (folder / "made" / name).exists():
                load(folder / "made" / name)

    return look


_SMALL = "--preset tiny --batch-size 8 --validate-every 2"
COMMANDS: dict[str, Command] = {
    "collect": Command(
        "collect detour --tasks detour --episodes 3 --workers 1 --out made",
        episodes_of,
        look=_if_there(episodes_of),
        refusal="made exists",
    ),
    "append": Command(
        "collect detour --tasks detour --episodes 2 --workers 1 --seed 5 --exists append --out made",
        episodes_of,
        look=episodes_of,
        appends=True,
        refusal="already holds episodes of seed 5",
    ),
    "fit": Command(
        f"fit --data {{study}}/demos --tokenizer oat --action-horizon 16 --steps 8 --out made {_SMALL}",
        weights,
        "--resume",
        _loads(load_tokenizer),
    ),
    "train": Command(
        f"train --data {{study}}/demos --tokenizer {{study}}/oat --steps 6 --out made {_SMALL}",
        weights,
        "--resume",
        _loads(load_policy),
    ),
    "cache": Command(
        f"train --data {{study}}/many.npz --tokenizer {{study}}/oat --steps 2 --out made {_SMALL}",
        weights,
        "--resume",
        _loads(load_policy),
    ),
    "encode": Command(
        "encode {study}/many.npz --tokenizer {study}/oat --no-errors --part-size 1000 --workers 2 --out made",
        parts,
        look=parts,
    ),
    "decode": Command("decode {study}/tokens --workers 2 --out made", parts, look=parts),
    "convert": Command("convert {study}/demos made --exists overwrite", episodes_of, look=_if_there(episodes_of)),
    "eval": Command("eval {study}/policy --sim detour --episodes 2 --workers 1 --num-tokens 1 8 --out made", records),
    "report": Command("report {study} --out made", page, look=_if_there(page)),
    "trials": Command(
        "trials made --methods one={study}/policy,num_tokens=1 all={study}/policy --tasks detour --trials 2 --seed 3 "
        "--robot oat.robots.trials.rehearsal:detour --fps 2000 --max-age 60",
        judged,
    ),
}
