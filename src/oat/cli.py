"""The `oat` command: verb → function, nothing else."""

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import tyro
from rich.console import Console
from rich.markup import escape

from oat.cli_kinds import fit_verb, train_verb
from oat.data.episodes import CameraStorage, WhenExists
from oat.encoding.config import DecodeConfig, EncodeConfig
from oat.errors import InvalidOption, OatError, UnknownFormat, refuse_unused
from oat.evaluation.config import EvalConfig, Measure
from oat.experiments.config import ReproduceConfig
from oat.export.config import LatencyConfig, Precision
from oat.io.interruption import Interruption
from oat.io.processes import leave_within
from oat.io.write_errors import explained, leave_refusals_to_callers
from oat.robots.trials.config import TrialsConfig
from oat.serving.config import ServeConfig
from oat.sims.config import CollectConfig
from oat.training.config import CalibrateConfig, FitConfig, TrainPolicyConfig

_RENDERED_SIZE = 128
_TIDYING_SECONDS = 5.0
_DESCRIPTION = """Ordered action tokenization: robot action chunks to a few ordered tokens and back.

Each verb explains itself: oat VERB --help. Add --debug to any of them for the traceback of an error."""


def inspect(
    path: tyro.conf.Positional[Path],
    data: Path | None = None,
    beside: tuple[Path, ...] = (),
    subset: str | None = None,
    episodes: str | None = None,
    picture: Path | None = None,
    refinement: Path | None = None,
    verify: bool = False,
    json: bool = False,
) -> None:
    """Describe a data set or a tokenizer as tables and a picture.

    A data set: episodes, ranges, saturation, constants, NaNs. A tokenizer, with --data: error, tokens and bits for
    every prefix on held-out chunks, use of the codebook, speed, beside Bin and FAST on the same chunks, and how many
    chunks are unlike those it was fitted to.

    Args:
        path: A data set (LeRobot v3.0 directory, HDF5, zarr ReplayBuffer, .npz), or a tokenizer's checkpoint or run.
        data: For a tokenizer: the demonstrations to hold it against.
        beside: For a tokenizer: others, fitted to the same demonstrations, to show in the same tables.
        subset: For a data set: only this named group of episodes, an HDF5 filter key or a LeRobot split.
        episodes: For a data set: only these episodes, such as 0:50,60.
        picture: Where to write the picture (.png, .pdf or .svg); by default NAME-inspect.png in this directory.
        refinement: For a tokenizer: instead of tables, a picture of a few chunks decoded from 1, 2, 4 and 8 tokens.
        verify: For a data set: read everything in it first, every file and frame, and compare it with its digests.
        json: Print JSON instead of tables.
    """
    if data is not None:
        refuse_unused("a tokenizer", "a data set", subset=subset, episodes=episodes, verify=verify or None)
        if refinement is not None:
            from oat.report.inspect_refinement import inspect_refinement

            inspect_refinement(path, data, refinement)
            return
        from oat.report.inspect_tokenizer import inspect_tokenizer

        inspect_tokenizer(path, data, beside, picture=picture, as_json=json)
        return
    refuse_unused("a data set", "a tokenizer with --data", beside=beside, refinement=refinement)
    from oat.report.inspect_dataset import inspect_dataset

    try:
        if verify:
            from oat.data.verify import verify_dataset

            verify_dataset(path.expanduser())
        inspect_dataset(path, subset=subset, ranges=episodes, picture=picture, as_json=json)
    except UnknownFormat as error:
        from oat.io.checkpoints import checkpoint_kind, find_checkpoint
        from oat.tokenizers import TOKENIZERS

        if checkpoint_kind(find_checkpoint(path)) in TOKENIZERS:
            raise InvalidOption(f"{path} is a tokenizer: say with --data what to hold it against") from error
        raise


def view(
    path: tyro.conf.Positional[Path],
    tokenizer: Path | None = None,
    episodes: str | None = None,
    save: Path | None = None,
) -> None:
    """Show demonstrations, chunks by their first 1 … 8 tokens, or rollouts in Rerun's viewer.

    A data set: actions, states and cameras over steps; with --tokenizer, its chunks as each number of tokens decodes
    them. What oat eval wrote with --videos: films with the predicted paths, and outcomes.

    Args:
        path: A data set in any known format, or the records of an evaluation.
        tokenizer: For a data set: the checkpoint or run of a tokenizer to see it through.
        episodes: For a data set: these episodes, such as 0:50,60; by default the first three.
        save: Write a recording (.rrd) for the viewer, instead of opening it.
    """
    from oat.report.view import view as show

    show(path, tokenizer, episodes, save)


def convert(
    source: tyro.conf.Positional[Path],
    out: tyro.conf.Positional[Path],
    subset: str | None = None,
    episodes: str | None = None,
    cameras: CameraStorage = "image",
    fps: float | None = None,
    exists: WhenExists = "refuse",
    render: tuple[str, ...] | None = None,
    image_size: int | None = None,
) -> None:
    """Convert a data set in any known format to LeRobotDataset v3.0.

    Args:
        source: LeRobot v3.0 directory, HDF5 file or directory of them, zarr ReplayBuffer, or .npz.
        out: The directory to write; it appears when it is complete.
        subset: Only this named group of episodes: an HDF5 filter key or a LeRobot split.
        episodes: Only these episodes, such as 0:50,60.
        cameras: image stores lossless PNG; video stores H.264, which is smaller but not exact.
        fps: Control frequency; needed only where the source does not record it (then 10 is assumed).
        exists: What to do when OUT exists.
        render: Observe robomimic's or LIBERO's demonstrations anew from the simulator states in the files, through
            cameras such as agentview robot0_eye_in_hand, or through none; stored observations are not taken over.
        image_size: Height and width of rendered images, by default 128.
    """
    from oat.data.convert import convert_dataset

    reobserve = None
    if render is None:
        refuse_unused("images that are stored", "those of --render", image_size=image_size)
    else:
        from oat.sims.replay import rerender

        reobserve = partial(
            rerender, path=source, cameras=render, image_size=_RENDERED_SIZE if image_size is None else image_size
        )
    convert_dataset(
        source, out, subset=subset, ranges=episodes, cameras=cameras, fps=fps, exists=exists, reobserve=reobserve
    )


def collect(config: tyro.conf.OmitArgPrefixes[CollectConfig]) -> None:
    """Let a simulator's expert demonstrate tasks; successful episodes become a LeRobotDataset v3.0.

    The same seed gives the same data set, whatever the number of workers. After an interruption the same command
    continues where it was.
    """
    from oat.sims.collect import collect_demonstrations

    collect_demonstrations(config)


def fit(config: FitConfig) -> None:
    """Fit a tokenizer to demonstrations: OAT, QueST, FAST or Bin.

    OAT and QueST are trained; OUT/best is then the checkpoint to use, and the same command with --resume continues
    an interrupted run. FAST and Bin are fitted at once, and OUT is the checkpoint.
    """
    from oat.training.tokenizers import fit_tokenizer

    fit_tokenizer(config)


def tokenizers(json: bool = False) -> None:
    """List the tokenizers that come with the package: their actions, errors, data and licences.

    oat.get_tokenizer(NAME) gives one in Python, and oat encode takes NAME in place of a checkpoint.

    Args:
        json: Print JSON instead of a table.
    """
    from oat.report.ready_made_table import show_ready_made

    show_ready_made(json)


def encode(config: tyro.conf.OmitArgPrefixes[EncodeConfig]) -> None:
    """Encode every chunk of a data set as tokens, in Parquet files beside its own episode and frame numbers.

    Language models are trained on what it writes: ids, lengths, the error of every prefix; Hugging Face datasets reads
    it. After an interruption the same command continues where it was.
    """
    from oat.encoding.run import encode_dataset

    encode_dataset(config)


def decode(config: tyro.conf.OmitArgPrefixes[DecodeConfig]) -> None:
    """Decode what oat encode wrote, or prefixes of it, to actions in Parquet files.

    The tokens bring their tokenizer along. After an interruption the same command continues where it was.
    """
    from oat.encoding.run import decode_tokens

    decode_tokens(config)


def train(config: TrainPolicyConfig) -> None:
    """Train a policy on demonstrations: autoregressive over a tokenizer's tokens, diffusion, or regression.

    OUT/best is the checkpoint to use; it contains the tokenizer and can be moved anywhere. The same command with
    --resume continues an interrupted run.
    """
    from oat.training.policies import train_policy

    train_policy(config)


def calibrate(config: tyro.conf.OmitArgPrefixes[CalibrateConfig]) -> None:
    """Make a stopping head for a policy: how far a prefix of its tokens is from the actions it stands for.

    With it, oat eval and oat serve stop each chunk by itself: --stop residual=0.02 --head OUT. The policy is not
    changed. Held-out demonstrations calibrate it, and a table shows what it does on others.
    """
    from oat.training.error_heads import calibrate as run

    run(config)


def evaluate(config: tyro.conf.OmitArgPrefixes[EvalConfig]) -> None:
    """Let a policy act in a simulator; every episode becomes a record in OUT, and a table is shown.

    All methods meet the same initial conditions. After an interruption the same command continues where it was.
    """
    from oat.evaluation.evaluate import evaluate_policy

    evaluate_policy(config)


def compare(
    first: tyro.conf.Positional[Path],
    second: tyro.conf.Positional[Path],
    first_policy: str | None = None,
    second_policy: str | None = None,
    measure: Measure = "success",
) -> None:
    """Compare two evaluations on the initial conditions that both met, with intervals and an exact test.

    Args:
        first: Records that oat eval wrote.
        second: Those of another evaluation, or the same.
        first_policy: Which policy of the first, if it holds several: as its table names them, such as "oat K=4".
        second_policy: Which policy of the second.
        measure: By what: success, or the best score of each episode, where a benchmark has one that is finer (pusht).
    """
    from oat.evaluation.evaluate import compare as compare_records

    compare_records(first, second, first_policy, second_policy, measure)


def export(policy: tyro.conf.Positional[Path], out: Path, precision: Precision = "float32", threads: int = 1) -> None:
    """Write a policy as ONNX graphs, which oat.load_runtime runs faster than PyTorch, and show how far they agree.

    Args:
        policy: The policy's checkpoint or run.
        out: The directory to write.
        precision: int8 generates tokens from 8-bit weights: faster, and a few tokens differ.
        threads: Of the comparison.
    """
    from oat.export.export import export_policy

    export_policy(policy, out, precision, threads)


def bench(what: tyro.conf.Positional[Literal["latency"]], config: tyro.conf.OmitArgPrefixes[LatencyConfig]) -> None:
    """Time a policy from observation to actions: PyTorch, its compiler and ONNX Runtime side by side.

    Args:
        what: What to measure.
        config: How.
    """
    from oat.export.latency import measure_latency

    measure_latency(config)


def serve(config: tyro.conf.OmitArgPrefixes[ServeConfig]) -> None:
    """Serve a policy to robots over WebSockets, in the openpi protocol; unmodified openpi clients can use it.

    Several robots are answered at once. /healthz and /metrics answer over HTTP. SIGTERM finishes requests in flight.
    """
    from oat.serving.server import serve_policy

    serve_policy(config)


def trials(config: tyro.conf.OmitArgPrefixes[TrialsConfig]) -> None:
    """Let an operator judge methods on a robot, blind and in random order, and show what came of it.

    Every method acts once in every block; the operator sees letters, sets the scene, presses Enter and judges. A trial
    is written to the log as soon as it is judged; after q, Ctrl-C or a crash the same command continues. When all
    are made, or on --reveal, the methods' names come out: successes with intervals, beside the paper's.
    """
    from oat.experiments.paper.trials import PUBLISHED_TRIALS
    from oat.robots.trials.run import judge_policies

    judge_policies(config, PUBLISHED_TRIALS)


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


VERBS: dict[str, Any] = {
    "collect": collect,
    "inspect": inspect,
    "view": view,
    "convert": convert,
    "fit": fit_verb(fit),
    "tokenizers": tokenizers,
    "encode": encode,
    "decode": decode,
    "train": train_verb(train),
    "calibrate": calibrate,
    "eval": evaluate,
    "compare": compare,
    "report": report,
    "export": export,
    "bench": bench,
    "serve": serve,
    "trials": trials,
    "reproduce": reproduce,
}


_BY_KIND: dict[str, Callable[[Sequence[str]], Any]] = {
    "fit": partial(fit_verb, fit),
    "train": partial(train_verb, train),
}
"""Verbs whose options depend on what is chosen; what `VERBS` holds of them has the usual choice."""


def _abandon_output() -> None:
    """Drop what standard output could not take: Python would try again on its way out, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_verb(words: list[str]) -> None:
    chosen = {verb: make(words[1:]) for verb, make in _BY_KIND.items() if words[:1] == [verb]}
    tyro.extras.subcommand_cli_from_dict(
        {**VERBS, **chosen}, prog="oat", description=_DESCRIPTION, args=words or ["--help"]
    )
    sys.stdout.flush()  # now, when a full disk under it can still be told


def main(arguments: list[str] | None = None) -> None:
    """Run one verb; a user's mistake ends with one line and status 1, a wrong command line with status 2."""
    interruption = Interruption()
    leave_refusals_to_callers()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        try:
            _run_verb(words)
        finally:
            interruption.ignore() if arguments is None else interruption.restore()
    except (OatError, OSError) as error:
        told = explained(error) if isinstance(error, OSError) and not isinstance(error, OatError) else error
        if told is None:
            raise
        if debug:
            traceback.print_exc()
        Console(stderr=True, soft_wrap=True).print(
            f"[bold red]error:[/] {escape(' '.join(str(told).split()))}", highlight=False
        )
        _abandon_output()
        sys.exit(1)
    except KeyboardInterrupt as interrupt:
        reason = str(interrupt) or "interrupted; nothing is half-written, the same command can be run again"
        Console(stderr=True, soft_wrap=True).print(reason, highlight=False, markup=False)
        _abandon_output()
        leave_within(_TIDYING_SECONDS, interruption.status)
        sys.exit(interruption.status)
