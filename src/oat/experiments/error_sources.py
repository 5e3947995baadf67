"""table-errors: where the error of a policy's chunks comes from, on demonstrations that it has not seen (our own).

Between a demonstrated chunk and the one that a policy would execute there is what the tokens cannot say, what the
policy would never draw, what it draws but does not choose, and what a regression beside the tokens repairs.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from oat.data.chunks import Batch, Windows
from oat.data.transforms import transform_inputs
from oat.experiments.study.held_out import find_policy, held_out_batches, held_out_windows, read_measures
from oat.experiments.study.methods import BC, COMPARED, RVQ, UNORDERED, Method
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import circumstances, not_run
from oat.io.training_record import Measures
from oat.policies import Policy, TokenDecoding
from oat.policies.decoding import Decoding, SampledDecoding
from oat.policies.sampling import Noise
from oat.policies.token_measures import SHOWN_POSITIONS
from oat.tables.interval import NOT_AVAILABLE
from oat.tables.table import Table
from oat.tokenizers.decoder import masked_error
from oat.training.policies import observation_of

NAME = "table-errors"
_METHODS = (BC, *COMPARED, UNORDERED, RVQ)
_DRAWS = 16
"""Chunks that are drawn for every window: the best of them tells whether the policy covers what was done."""


@dataclass(frozen=True)
class ErrorSources:
    """Hold mean squared errors in model space, over the same held-out chunks; NaN where a policy has no such chunk."""

    executed: float
    """Of the chunk that the policy executes by default."""
    likely: float
    """Of the most likely tokens alone."""
    drawn: float
    """Of one chunk drawn at random, without a remainder."""
    mean: float
    """Of the mean of all that were drawn, which no policy executes."""
    best: float
    """Of that of all that were drawn which is nearest to what was done."""


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: every method of table-sim, OAT× and RVQ, up to its policy."""
    return [replace(each, until="policy") for each in study.evaluations(_METHODS)]


def tables(study: Study) -> list[Table]:
    """Return the table of the errors of every method whose policy is there, as means over its training seeds."""
    rows = list[tuple[str, ...]]()
    absent = list[str]()
    for method in _METHODS:
        seeds = [each.seed for each in study.evaluations([method])]
        policies = {seed: policy for seed in seeds if (policy := find_policy(study, method, seed)) is not None}
        if policies:
            rows.append(_row(study, method, policies))
        else:
            absent.append(method.name)
    columns = (
        *(
            "",
            "training seeds",
            f"accuracy of the first, second, … token, at most {SHOWN_POSITIONS}, %",
            "tokenizer alone",
            f"best of {_DRAWS} drawn",
        ),
        *("one drawn", f"mean of {_DRAWS}", "most likely tokens", "as executed"),
    )
    reading = (
        f"mean squared errors in model space over {study.scale.chunks} held-out chunks; accuracy is that of the most "
        "likely token after the demonstrated ones"
    )
    title = f"{NAME}: from what was demonstrated to what would be executed"
    return [Table(title, columns, tuple(rows), (reading, *not_run(absent), *circumstances(study)))]


def _row(study: Study, method: Method, policies: dict[int, Policy]) -> tuple[str, ...]:
    found = [measure_errors(study, policy) for policy in policies.values()]
    taught = [read_measures(study, method.run("policies", seed)) for seed in policies]
    fitted = [read_measures(study, method.run("tokenizers", seed)).error() or math.nan for seed in policies]
    return (
        method.name,
        " ".join(map(str, policies)),
        _accuracies(taught),
        *(
            _mean(errors)
            for errors in (
                fitted,
                [each.best for each in found],
                [each.drawn for each in found],
                [each.mean for each in found],
                [each.likely for each in found],
                [each.executed for each in found],
            )
        ),
    )


def _accuracies(taught: Sequence[Measures]) -> str:
    """Return the mean accuracy of every position that was measured."""
    known = [each.accuracy_of_token for each in taught if each.accuracy_of_token]
    if not known:
        return NOT_AVAILABLE
    places = sorted(set.intersection(*(set(each) for each in known)))
    return " ".join(f"{sum(100 * each[place] for each in known) / len(known):.0f}" for place in places)


def _mean(errors: Sequence[float]) -> str:
    known = [error for error in errors if not math.isnan(error)]
    return f"{sum(known) / len(known):.4f}" if known else NOT_AVAILABLE


@torch.no_grad()
def measure_errors(study: Study, policy: Policy) -> ErrorSources:
    """Compare a policy's chunks with what was demonstrated in the same held-out situations."""
    windows = held_out_windows(study, policy)
    usual = policy.default_decoding
    parts = [_measure_batch(policy, windows, batch, usual) for batch in held_out_batches(study, windows)]
    # Chunks that do not decode have no error; the share of them is figure-fast-failure's.
    sums = {name: torch.cat([part[name] for part in parts if name in part]) for name in parts[0]}
    means = {name: float(errors.nanmean()) for name, errors in sums.items()}
    return ErrorSources(*(means.get(each.name, math.nan) for each in fields(ErrorSources)))


def _measure_batch(
    policy: Policy, windows: Windows, batch: Batch, usual: Decoding
) -> dict[str, Float[Tensor, " batch"]]:
    actions, valid, state = transform_inputs(batch, policy.space.transform)
    target = policy.to_model_space(actions, state)

    def predict(decoding: Decoding, draw: int = 0) -> Float[Tensor, "batch time dim"]:
        noise = Noise.of(batch.windows.tolist(), [draw] * len(batch))
        chunk = policy.predict_chunk(observation_of(windows, batch), decoding, noise=noise)
        return policy.to_model_space(chunk.actions, state)

    errors = {"executed": masked_error(predict(usual), target, valid)}
    drawing = usual.drawing(1)
    if isinstance(drawing, TokenDecoding):
        drawing = replace(drawing, remainder=False, temperature=TokenDecoding.temperature)
        errors["likely"] = masked_error(predict(drawing.most_likely), target, valid)
    elif not isinstance(drawing, SampledDecoding):
        return errors  # there is nothing to draw
    return errors | _errors_of_draws(torch.stack([predict(drawing, draw) for draw in range(_DRAWS)]), target, valid)


def _errors_of_draws(
    drawn: Float[Tensor, "draws batch time dim"],
    target: Float[Tensor, "batch time dim"],
    valid: Bool[Tensor, "batch time"],
) -> dict[str, Float[Tensor, " batch"]]:
    """Return the errors of the first chunk drawn, of the mean of all and of the best of them."""
    each = torch.stack([masked_error(chunk, target, valid) for chunk in drawn])
    return {
        "drawn": each[0],
        "mean": masked_error(drawn.nanmean(0), target, valid),
        "best": each.nan_to_num(torch.inf).amin(0).where(~each.isnan().all(0), torch.nan),
    }
