"""Publish a study: copy what is small enough for git, and enough to print every table anew."""

import gzip
import shutil
from pathlib import Path

from oat.evaluation.records import COMPRESSED_RECORDS_FILE, RECORDS_FILE
from oat.experiments.decoding_timings import DECODING_TIMINGS_FILE
from oat.experiments.latency_records import TIMINGS_FILE
from oat.experiments.paths import PATHS_FOLDER
from oat.experiments.real import TRIALS_FOLDER
from oat.experiments.study.budget import STEP_SECONDS_FILE
from oat.experiments.study.runs import DONE_FOLDER, marker
from oat.experiments.study.starts import STARTS_FOLDER
from oat.io.atomic import staged_file
from oat.training.config import OUTCOME_FILE

_COPIED = (
    f"{DONE_FOLDER}/*.json",
    STEP_SECONDS_FILE,
    TIMINGS_FILE,
    DECODING_TIMINGS_FILE,
    "tables/*",
    "figures/*",
    f"{TRIALS_FOLDER}/*.jsonl",
    f"{PATHS_FOLDER}/*.npz",
    f"{STARTS_FOLDER}/**/*.npz",
)


CALIBRATION_FOLDER = "calibration"
"""Where tables of what stopping heads do are published: a folder of the head's own name would pass for the head."""


def publish(study: Path, target: Path) -> None:
    """Copy finished evaluations' records, compressed, trials, paths, starts, commands, times, tables and figures, and
    what stopping heads do on held-out chunks.

    `--out` can be the target, with --only-tables.
    """
    for pattern in _COPIED:
        for file in sorted(study.glob(pattern)):
            with staged_file(target / file.relative_to(study)) as staging:
                shutil.copyfile(file, staging)
    for file in sorted(study.glob(f"heads/*/{OUTCOME_FILE}")):
        with staged_file(target / CALIBRATION_FOLDER / f"{file.parent.name}.json") as staging:
            shutil.copyfile(file, staging)
    for file in sorted(study.glob(f"records/*/{RECORDS_FILE}")):
        run = file.parent.relative_to(study)
        # Records of an evaluation that is not finished would be printed as if they were all.
        if not marker(study, str(run)).exists():
            continue
        with staged_file(target / run / COMPRESSED_RECORDS_FILE) as staging:
            # Without a time in it, the file is the same whenever it is published.
            staging.write_bytes(gzip.compress(file.read_bytes(), mtime=0))
