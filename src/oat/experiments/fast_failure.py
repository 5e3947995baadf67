"""figure-fast-failure: when FAST's sequences do not decode, and what guessing would do instead (appendix B).

A FAST sequence is a chunk only if its tokens expand to exactly H_a · D_a coefficients. One token that stands for more
or fewer of them moves all that follow to other frequencies and joints: padding or truncating hides the failure, but not
the damage. OAT decodes every sequence, so that a wrong token is a wrong token and no more.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from oat.data.episodes import open_dataset
from oat.evaluation.statistics import success_rate
from oat.experiments.config import ExperimentName
from oat.experiments.pictures import COLORS, new_figure, save_figure, whiskers
from oat.experiments.study.held_out import (
    episode_numbers,
    find_policy,
    find_tokenizer,
    held_out_batches,
    held_out_chunks,
    held_out_windows,
)
from oat.experiments.study.methods import FAST, OAT
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.substitutions import Damage, damage
from oat.experiments.success import circumstances, not_run, training_steps
from oat.policies import AutoregressivePolicy, Noise, TokenDecoding
from oat.tables.interval import Interval, percent
from oat.tables.table import Table
from oat.tokenizers import FASTTokenizer
from oat.tokenizers.measures import ChunkBatch
from oat.training.policies import observation_of

NAME: ExperimentName = "figure-fast-failure"
TEMPERATURES = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)
SUBSTITUTIONS = (0, 1, 2, 4, 8)


def evaluations(study: Study) -> list[EvaluationRun]:
    return [EvaluationRun(FAST, until="policy"), EvaluationRun(OAT, until="tokenizer")]


@dataclass(frozen=True)
class Sampled:
    """What a policy drew at one temperature."""

    top_k: int | None
    temperature: float
    undecodable: Interval
    too_few: float
    too_many: float
    """Shares of all that expand to another number of coefficients than a chunk has."""


def tables(study: Study) -> list[Table]:
    policy, oat = find_policy(study, FAST), find_tokenizer(study, OAT)
    titles = (f"{NAME}: sampled sequences that do not decode", f"{NAME}: random substitutions in encoded chunks")
    if not isinstance(policy, AutoregressivePolicy) or oat is None:
        absent = [name for name, model in (("FAST's policy", policy), ("OAT's tokenizer", oat)) if model is None]
        return [Table(titles[0], ("method",), (), (*circumstances(study), *not_run(absent)))]
    fast = policy.tokenizer
    assert isinstance(fast, FASTTokenizer)
    sampled = list(_sample(study, policy))
    chunks = held_out_chunks(study, oat)
    damages = [damage(name, each, chunks, n) for n in SUBSTITUTIONS for name, each in (("FAST", fast), ("OAT", oat))]
    picture = _draw(study, sampled, damages, chunks)
    steps = {method.name: training_steps(study, EvaluationRun(method)) for method in (FAST, OAT)}
    told = (*circumstances(study), f"steps: FAST {steps['FAST']}, OAT {steps['OAT']} (tokenizer alone used)", picture)
    return [_sampled_table(study, titles[0], sampled, told), _damage_table(study, titles[1], damages, chunks, told)]


def _sample(study: Study, policy: AutoregressivePolicy) -> Iterator[Sampled]:
    """The policy's chunks for held-out observations, at every temperature."""
    windows, fast = held_out_windows(study, policy), policy.tokenizer
    assert isinstance(fast, FASTTokenizer)
    needed = fast.max_tokens
    batches = list(held_out_batches(study, windows))
    episodes = [number for batch in batches for number in episode_numbers(windows, batch)]
    for top_k in (TokenDecoding().top_k, None):
        for temperature in TEMPERATURES:
            failed, numbers = list[bool](), list[int]()
            for batch in batches:
                noise = Noise.of(batch.windows.tolist(), [0] * len(batch))
                decoding = TokenDecoding(temperature=temperature, top_k=top_k)
                chunk = policy.predict_chunk(observation_of(windows, batch), decoding, noise)
                assert chunk.tokens is not None
                failed += (~chunk.valid).tolist()
                numbers += [len(row) for row in fast.expand(chunk.tokens)]
            few, many = (float(np.mean(each)) for each in (np.array(numbers) < needed, np.array(numbers) > needed))
            yield Sampled(top_k, temperature, success_rate(failed, episodes), few, many)


def _sampled_table(study: Study, title: str, sampled: Sequence[Sampled], told: Sequence[str]) -> Table:
    columns = ("FAST, sampled among", "temperature", "undecodable %", "95 %", "too few %", "too many %")
    rows = tuple(
        (
            *("all tokens" if each.top_k is None else f"the {each.top_k} most likely", f"{each.temperature:g}"),
            *(*percent(each.undecodable), f"{100 * each.too_few:.1f}", f"{100 * each.too_many:.1f}"),
        )
        for each in sampled
    )
    reading = "too few, too many: coefficients; what fails with as many as a chunk has was not ended by the policy"
    return Table(title, columns, rows, (f"{study.scale.chunks} held-out observations at most", reading, *told))


def _damage_table(
    study: Study, title: str, damages: Sequence[Damage], chunks: ChunkBatch, told: Sequence[str]
) -> Table:
    joints = _joints(study)
    columns = ("method", "tokens replaced", "undecodable %", "95 %", *(f"RMSE {joint}" for joint in joints))
    rows = tuple(
        (
            *(each.method, str(each.substitutions), *percent(each.undecodable)),
            *(f"{value:.3f}" for value in each.rmse.tolist()),
        )
        for each in damages
    )
    notes = (
        f"{len(chunks)} held-out chunks, in action units; FAST's sequences that do not decode are padded with zeros or "
        "truncated here, which the tokenizer itself never does",
        "equal numbers of tokens are replaced: of OAT's 8, 8 are all; of FAST's, a part",
    )
    return Table(title, columns, rows, (*notes, *told))


def _joints(study: Study) -> tuple[str, ...]:
    episodes = open_dataset(study.data)
    return episodes.action_names or tuple(map(str, range(episodes.action_dim)))


def _draw(study: Study, sampled: Sequence[Sampled], damages: Sequence[Damage], chunks: ChunkBatch) -> str:
    figure = new_figure(12, 7)
    grid = figure.add_gridspec(2, 12)
    _draw_temperatures(figure.add_subplot(grid[0, :4]), sampled)
    _draw_substitutions(figure.add_subplot(grid[0, 4:8]), damages)
    _draw_joints(figure.add_subplot(grid[0, 8:]), damages, _joints(study))
    _draw_example([figure.add_subplot(grid[1, 4 * n : 4 * n + 4]) for n in range(3)], damages, chunks, _joints(study))
    return save_figure(study, NAME, figure)


def _rates(axes: Any, places: Sequence[float], rates: Sequence[Interval], **look: Any) -> None:
    middle = [100 * rate.estimate for rate in rates]
    axes.errorbar(places, middle, whiskers(rates), marker="o", capsize=2, **look)


def _draw_temperatures(axes: Any, sampled: Sequence[Sampled]) -> None:
    for top_k, style in ((10, "-"), (None, ":")):
        chosen = [each for each in sampled if each.top_k == top_k]
        label = "among all tokens" if top_k is None else f"among the {top_k} most likely"
        rates = [each.undecodable for each in chosen]
        _rates(axes, TEMPERATURES, rates, linestyle=style, color=COLORS["FAST"], label=label)
    axes.set(title="FAST policy: sampled chunks", xlabel="temperature", ylabel="undecodable, %", ylim=(-4, 104))
    axes.legend(fontsize=8)


def _draw_substitutions(axes: Any, damages: Sequence[Damage]) -> None:
    for name in ("FAST", "OAT"):
        rates = [each.undecodable for each in damages if each.method == name]
        _rates(axes, range(len(rates)), rates, color=COLORS[name], label=name)
    axes.set_xticks(range(len(SUBSTITUTIONS)), SUBSTITUTIONS)
    axes.set(title="random substitutions", xlabel="tokens replaced", ylabel="undecodable, %", ylim=(-4, 104))
    axes.legend(fontsize=8)


def _draw_joints(axes: Any, damages: Sequence[Damage], joints: Sequence[str]) -> None:
    looks = {("OAT", 0): 0.45, ("OAT", 1): 1.0, ("FAST", 0): 0.45, ("FAST", 1): 1.0}
    for place, ((name, count), alpha) in enumerate(looks.items()):
        (each,) = (damage for damage in damages if (damage.method, damage.substitutions) == (name, count))
        label = f"{name}, {'intact' if count == 0 else '1 replaced'}"
        where = [joint + 0.2 * place - 0.3 for joint in range(len(joints))]
        axes.bar(where, each.rmse.tolist(), 0.2, color=COLORS[name], alpha=alpha, label=label)
    axes.set_xticks(range(len(joints)), joints)
    axes.set(title="one wrong token, forced to decode", ylabel="RMSE, action units")
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
    axes.legend(fontsize=8, ncols=2, loc="upper center")


def _draw_example(panels: Sequence[Any], damages: Sequence[Damage], chunks: ChunkBatch, joints: Sequence[str]) -> None:
    """The chunk that one substitution hurts in the middling way, among those that it makes undecodable."""
    fast, oat = ({each.method: each for each in damages if each.substitutions == 1}[name] for name in ("FAST", "OAT"))
    candidates = torch.nonzero(fast.failed & chunks.valid.all(1))[:, 0]
    candidates = candidates if len(candidates) else torch.arange(len(chunks))
    errors = (fast.decoded - chunks.actions)[candidates].square().mean((1, 2))
    shown = int(candidates[errors.argsort()[len(errors) // 2]])
    curves = (
        ("demonstrated", chunks.actions),
        ("FAST, 1 replaced, forced", fast.decoded),
        ("OAT, 1 replaced", oat.decoded),
    )
    low, high = (bound(torch.stack([curve[shown] for _, curve in curves])) for bound in (torch.min, torch.max))
    for axes, (title, curve) in zip(panels, curves, strict=True):
        for dim, joint in enumerate(joints):
            axes.plot(curve[shown, :, dim], color=f"C{dim % 10}", label=joint)
        axes.set(title=title, xlabel="step", ylim=(float(low) - 0.1, float(high) + 0.1))
    panels[0].set_ylabel("action")
    panels[0].legend(fontsize=7)
