"""The verbs of policies: train, calibrate, eval, compare."""

from pathlib import Path

import tyro

from oat.evaluation.config import EvalConfig, Measure
from oat.training.config import CalibrateConfig, TrainPolicyConfig


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
    changed. Held-out demonstrations calibrate it, and a table shows what it does on others. Stopping so is
    experimental.
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
