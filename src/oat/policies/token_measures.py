"""What is measured of a next-token policy on held-out demonstrations: likelihoods of tokens, errors of its chunks."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from oat.io.training_record import Measures
from oat.policies.learning import HeldOut
from oat.policies.token_lessons import Taught

if TYPE_CHECKING:
    from oat.policies.autoregressive import AutoregressivePolicy

SHOWN_POSITIONS = 8
"""Tokens whose likelihoods are shown one by one; sequences of Bin have hundreds."""


@torch.no_grad()
def measure_tokens(policy: "AutoregressivePolicy", held_out: HeldOut) -> Measures:
    """Return how likely the policy finds held-out tokens, and how far its own chunks are from what was done."""
    sums = torch.zeros(4, policy.length)
    chunks = 0
    for lesson in held_out.lessons():
        assert lesson.tokens is not None
        # A held-out chunk may need more tokens than any training chunk did: it has no likelihood here.
        fitting = torch.nonzero(lesson.tokens.lengths <= policy.longest).squeeze(-1)
        if len(fitting) == 0:
            continue
        tokens = lesson.tokens[fitting]
        values = {key: value[fitting] for key, value in lesson.values.items()}
        taught: Taught = policy(values, lesson.tasks[fitting], tokens)
        right = (taught.likely == policy.targets(tokens)[0]) * taught.counts
        found = torch.stack([taught.nll, taught.losses, right, taught.counts]).sum(1)
        sums[:, : found.shape[1]] += found.cpu()
        chunks += len(fitting)
    nll, losses, right, counts = sums
    places = torch.nonzero(counts)[:SHOWN_POSITIONS, 0].tolist()
    measures = Measures(
        score=float(losses.sum() / counts.sum()),
        nll_of_chunk=float(nll.sum()) / max(chunks, 1),
        nll_of_token={place + 1: float(nll[place] / counts[place]) for place in places},
        accuracy_of_token={place + 1: float(right[place] / counts[place]) for place in places},
    )
    return _with_generated(measures, policy, held_out)


def _with_generated(taught: Measures, policy: "AutoregressivePolicy", held_out: HeldOut) -> Measures:
    """Return the measures with the errors of chunks that the policy generates itself.

    Where every sequence decodes, the error of whole ones is the score, as for kinds without tokens, so that all are
    chosen alike: with a remainder where the policy acts with it, and of the most likely tokens also where it samples.
    """
    errors = held_out.open_loop_errors(policy, policy.default_decoding.most_likely)
    whole = None if bool(errors[-1].isnan().all()) else float(errors[-1].nanmean())
    scored = taught if policy.variable_length or whole is None else replace(taught, score=whole)
    if policy.anytime:
        return replace(scored, mse_of_prefix=dict(enumerate(errors.mean(1).tolist(), start=1)))
    return replace(scored, undecodable=float(errors[-1].isnan().float().mean()), mse=whole)
