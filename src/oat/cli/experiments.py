"""The verbs of results: reproduce, report."""

from pathlib import Path

import tyro

from oat.experiments.config import ReproduceConfig


def reproduce(config: tyro.conf.OmitArgPrefixes[ReproduceConfig]) -> None:
    """Run tables and figures of the paper by name, at a scale that fits the machine.

    Collects, fits, trains and evaluates what is not there yet; after an interruption the same command continues.
    """
    from oat.experiments.reproduce import reproduce as run

    run(config)


def report(folder: tyro.conf.Positional[Path], out: Path, data: Path | None = None) -> None:
    """Write one HTML page that shows what lies below a directory, opens from disk and fetches nothing.

    It holds tables, success against tokens and time, rate and distortion, a slider that refines chunks token by token,
    codebooks, training curves and a few videos: of data sets, tokenizers, logs, records and tables/*.json.

    Args:
        folder: The directory, such as what oat reproduce wrote.
        out: The page to write.
        data: The demonstrations to hold tokenizers against, if not a data set below the directory.
    """
    from oat.report.page import write_report

    write_report(folder, out, data)
