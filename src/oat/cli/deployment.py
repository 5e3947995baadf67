"""The verbs of policies that leave the simulator: export, bench, serve, trials."""

from pathlib import Path
from typing import Literal

import tyro

from oat.export.config import LatencyConfig, Precision
from oat.robots.trials.config import TrialsConfig
from oat.serving.config import ServeConfig


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
