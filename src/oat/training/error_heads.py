"""Behind `oat calibrate`: a head that tells the error of a policy's prefixes, and the margin that makes it reliable.

The policy stays as it is. Targets are every chunk's own distortions d_k: the root mean square by which the decoded
prefix of its k tokens misses its executed actions. How much another token lowers that is measured with tokens that the
policy itself draws after the demonstrated ones.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int64
from rich.console import Console
from torch import Tensor
from torch.nn import functional as F

from oat.data.chunks import Batch, WindowConfig, Windows
from oat.data.episodes import Episodes, open_dataset
from oat.data.shuffle import Permutation, derive_key
from oat.data.splits import split_episodes
from oat.data.transforms import transform_inputs
from oat.errors import InvalidOption
from oat.io.commands import command_line
from oat.io.progress import progress_bar
from oat.io.training_record import TrainingRecord
from oat.policies import AutoregressivePolicy, load_policy
from oat.policies.error_head import ErrorHead, HeadConfig
from oat.tables.files import save_tables
from oat.tables.table import Table
from oat.tables.terminal import to_terminal
from oat.tokenizers.tokens import Tokens
from oat.training.config import OUTCOME_FILE, CalibrateConfig
from oat.training.token_cache import encode_batch

_BLOCK = 64  # windows that the policy reads at a time
_QUANTILES = (0.25, 0.5, 0.75)  # of held-out errors of whole chunks and first tokens, at which the outcome is shown


@dataclass(frozen=True)
class Prefixes:
    """Hold what a policy knows after every prefix of some chunks, and the errors that these have."""

    hidden: Float[Tensor, "chunks tokens dim"]
    last: Int64[Tensor, "chunks tokens"]
    errors: Float[Tensor, "chunks tokens"]
    """Root mean square over the executed actions, in action units."""
    drops: Float[Tensor, "chunks tokens"]
    """By how much a token that the policy draws next lowers the error; 0 after the last."""

    @property
    def counts(self) -> Int64[Tensor, "chunks tokens"]:
        """Return how many tokens each prefix has."""
        return torch.arange(1, self.last.shape[1] + 1).expand_as(self.last)


def calibrate(config: CalibrateConfig) -> None:
    """Train and calibrate a stopping head, write it, and show what it does on held-out chunks."""
    policy = load_policy(config.policy)
    if not isinstance(policy, AutoregressivePolicy) or not policy.anytime:
        raise InvalidOption(f"a stopping head is for policies whose every prefix decodes; {config.policy} is not one")
    if config.execute > policy.space.action_horizon:
        raise InvalidOption(f"execute must be 1…{policy.space.action_horizon}, got {config.execute}")
    episodes = open_dataset(config.data)
    _check_data(policy.training_record, episodes, config)
    trained, held_out = split_episodes(episodes, *policy.training_record.split())
    if len(held_out) == 0:
        raise InvalidOption(
            f"a held-out episode is needed to calibrate by; the policy was trained on all of {config.data}"
        )
    taught = measure_prefixes(policy, _windows(policy, episodes.select(trained)), config)
    head = train_head(policy, taught, config)
    # The halves are interleaved: episodes are often ordered by task.
    calibrating = measure_prefixes(policy, _windows(policy, episodes.select(held_out[::2])), config)
    others = held_out[1::2]
    checking = measure_prefixes(policy, _windows(policy, episodes.select(others)), config) if len(others) else None
    head.margin.fill_(conformal_margin(head, calibrating, config.share))
    head.means.copy_(calibrating.errors.mean(0))
    record = TrainingRecord(command=command_line("calibrate", config), data=str(config.data), seed=config.seed)
    head.save(config.out, record)
    outcome = outcome_table(head, checking or calibrating, fresh=checking is not None)
    save_tables(config.out / OUTCOME_FILE, [outcome])
    Console().print(to_terminal(outcome))


def _check_data(trained_on: TrainingRecord, episodes: Episodes, config: CalibrateConfig) -> None:
    """Raise `InvalidOption` for other demonstrations than the policy's, as far as it is noted how many these were.

    In others, those that count as held out may be those that it was trained on.
    """
    noted = (trained_on.episodes, trained_on.frames)
    found = (len(episodes), episodes.num_frames)
    if None not in noted and noted != found:
        raise InvalidOption(
            f"{config.data} has {found[0]} episodes and {found[1]} frames, the policy was trained on {noted[0]} and "
            f"{noted[1]}: which of them were held out is only known there"
        )


def _windows(policy: AutoregressivePolicy, episodes: Episodes) -> Windows:
    seen = policy.observed
    key = policy.space.transform.state_key
    observed = (*seen.keys, *(() if key in (None, *seen.keys) else (str(key),)))
    return Windows(episodes, WindowConfig(policy.space.action_horizon, seen.obs_horizon, observed))


def measure_prefixes(policy: AutoregressivePolicy, windows: Windows, config: CalibrateConfig) -> Prefixes:
    """Return states and errors of some windows, in a fixed random order."""
    count = min(config.windows, len(windows))
    chosen = Permutation(len(windows), derive_key(config.seed))(np.arange(count))
    generator = torch.Generator().manual_seed(config.seed)
    blocks: list[Prefixes] = []
    with progress_bar("measuring prefixes", count) as bar:
        for first in range(0, count, _BLOCK):
            batch = windows[chosen[first : first + _BLOCK]]
            blocks.append(_measure_block(policy, windows, batch, config.execute, generator))
            bar.advance(len(batch))
    fields = ("hidden", "last", "errors", "drops")
    return Prefixes(*(torch.cat([getattr(block, name) for block in blocks]) for name in fields))


@torch.no_grad()
def _measure_block(
    policy: AutoregressivePolicy, windows: Windows, batch: Batch, executed: int, generator: torch.Generator
) -> Prefixes:
    tasks = policy.context.task.find([windows.tasks[number] for number in batch.task_ids])
    values = {key: torch.from_numpy(value) for key, value in batch.observations.items()}
    ids = encode_batch(policy.tokenizer, batch).ids
    hidden, logits = policy.read_tokens(values, tasks, ids)
    actions, valid, state = transform_inputs(batch, policy.space.transform)
    target = actions[:, :executed]
    counted = valid[:, :executed]
    errors = torch.stack(
        [_error(policy, ids[:, :count], target, counted, state) for count in range(1, ids.shape[1] + 1)], 1
    )
    noise = -torch.empty(logits.shape).exponential_(generator=generator).log()
    drawn = (logits + noise).argmax(-1)  # of every place, after the demonstrated tokens before it
    drops = torch.zeros_like(errors)
    for count in range(1, ids.shape[1]):
        longer = torch.cat([ids[:, :count], drawn[:, count : count + 1]], 1)
        drops[:, count - 1] = errors[:, count - 1] - _error(policy, longer, target, counted, state)
    return Prefixes(hidden, ids, errors, drops)


def _error(
    policy: AutoregressivePolicy,
    ids: Int64[Tensor, "batch tokens"],
    target: Float[Tensor, "batch executed dim"],
    counted: Bool[Tensor, "batch executed"],
    state: Tensor | None,
) -> Float[Tensor, " batch"]:
    """Return the root mean square error of decoded prefixes over the executed actions that were demonstrated."""
    tokens = Tokens(ids, torch.full((len(ids),), ids.shape[1]))
    decoded, _ = policy.tokenizer.try_decode(tokens, target.shape[1], state)
    squares = (decoded - target).square().mean(-1) * counted
    return (squares.sum(1) / counted.sum(1)).sqrt()


def train_head(policy: AutoregressivePolicy, taught: Prefixes, config: CalibrateConfig) -> ErrorHead:
    """Return a head that was trained on these prefixes, and not calibrated yet."""
    generator = torch.Generator().manual_seed(config.seed)
    torch.manual_seed(config.seed)
    identity = policy.identity
    head = ErrorHead(
        HeadConfig(
            identity,
            taught.hidden.shape[-1],
            policy.outputs,
            policy.longest,
            config.execute,
            share=config.share,
        )
    )
    head.vectors.copy_(policy.embedding.vectors().detach()[: policy.outputs])
    head.scale.copy_(taught.errors[:, 0].mean())
    optimizer = torch.optim.AdamW(head.parameters(), config.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, config.steps)
    errors, drops = head.targets(taught.errors, taught.drops)
    with progress_bar("training the head", config.steps) as bar:
        for _ in range(config.steps):
            rows = torch.randint(len(errors), (config.batch,), generator=generator)
            predicted = head(taught.hidden[rows], taught.last[rows], taught.counts[rows])
            # After the last token there is no further drop to predict.
            loss = F.mse_loss(predicted[..., 0], errors[rows]) + F.mse_loss(predicted[:, :-1, 1], drops[rows, :-1])
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            optimizer.step()
            schedule.step()
            bar.advance(1)
    return head.requires_grad_(False).eval()


def conformal_margin(head: ErrorHead, measured: Prefixes, share: float) -> float:
    """Return what predictions must be multiplied by to be bounds, for a share of chunks like these.

    A chunk's score is the largest ratio of an error to its prediction among its prefixes: wherever a rule stops, the
    bound then holds. With n chunks, the ⌈(n + 1) · share⌉-th smallest score bounds a further one's in this share.
    """
    predicted = head.error(measured.hidden, measured.last, measured.counts)
    scores = (measured.errors / predicted).amax(1).sort().values
    place = math.ceil((len(scores) + 1) * share)
    if place > len(scores):
        raise InvalidOption(f"{len(scores)} held-out chunks are too few to calibrate for a share of {share:g}")
    return float(scores[place - 1])


@dataclass(frozen=True)
class Outcome:
    """Hold what stopping by a bound does to some chunks."""

    tokens: float
    """Mean tokens per chunk."""
    stopped: float
    """Share of chunks that stop before their last token."""
    within: float
    """Share of those whose error is within the bound; NaN where none stops."""
    oracle: float
    """Mean tokens per chunk if every error were known."""


def stop_by(head: ErrorHead, measured: Prefixes, epsilon: float) -> Outcome:
    """Return what happens to chunks whose rows stop at the first prefix with a bound of at most epsilon."""
    bounds = head.margin * head.error(measured.hidden, measured.last, measured.counts)
    depths = _first(bounds <= epsilon)
    early = depths < bounds.shape[1]
    errors = measured.errors.gather(1, depths[:, None] - 1)[:, 0]
    within = float((errors[early] <= epsilon).float().mean()) if bool(early.any()) else math.nan
    oracle = float(_first(measured.errors <= epsilon).float().mean())
    return Outcome(float(depths.float().mean()), float(early.float().mean()), within, oracle)


def _first(enough: Bool[Tensor, "chunks tokens"]) -> Int64[Tensor, " chunks"]:
    """Return after how many tokens there are enough for the first time, or all where that never is."""
    return torch.where(enough.any(1), enough.int().argmax(1) + 1, enough.shape[1])


def outcome_table(head: ErrorHead, checking: Prefixes, *, fresh: bool) -> Table:
    """Return what stopping does to held-out chunks, which if they are fresh did not calibrate the head."""
    ends = (checking.errors[:, -1], checking.errors[:, 0])
    shown: Sequence[float] = sorted({float(f"{float(each.quantile(q)):.2g}") for each in ends for q in _QUANTILES})
    rows = []
    for epsilon in shown:
        found = stop_by(head, checking, epsilon)
        within = "—" if math.isnan(found.within) else f"{100 * found.within:.1f}"
        tokens = (f"{found.tokens:.2f}", f"{found.oracle:.2f}")
        rows.append((f"{epsilon:g}", *tokens, f"{100 * found.stopped:.1f}", within))
    means = ", ".join(f"{each:.3g}" for each in checking.errors.mean(0).tolist())
    notes = (
        f"{len(checking.errors)} held-out chunks, which {'did not calibrate' if fresh else 'calibrated'} the head; "
        f"margin {float(head.margin):.2g}",
        f"the bound holds at every prefix for {head.config.share:.0%} of chunks: so many do not stop outside ε",
        f"mean error after 1, 2, … tokens: {means}, in action units, over {head.config.executed} executed actions",
    )
    columns = ("ε", "tokens", "an oracle's", "stop early %", "of these within ε %")
    return Table("stopping by residual", columns, tuple(rows), notes)
