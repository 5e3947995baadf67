"""figure-fast-failure: when FAST's sequences do not decode, and what guessing would do instead (appendix B).

A FAST sequence is a chunk only if its tokens expand to exactly H_a · D_a coefficients. One token that stands for more
or fewer of them moves all that follow to other frequencies and joints: padding or truncating hides the failure, but not
the damage. OAT decodes every sequence, so that a wrong token costs no more than itself.
"""

from collections.abc import Sequence
from typing import Any

import torch

from oat.data.episodes import open_dataset
from oat.experiments.malformed_episodes import malformed_table, needed_evaluations
from oat.experiments.pictures import COLORS, save_study_figure, whiskers
from oat.experiments.sampled_sequences import TEMPERATURES, TOP_KS, SampledSequences, sample_sequences
from oat.experiments.study.held_out import find_policy, find_tokenizer, held_out_chunks
from oat.experiments.study.methods import FAST, OAT
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.substitutions import Damage, measure_damage
from oat.experiments.success import circumstances, not_run, training_steps
from oat.io.pictures import new_figure
from oat.policies import AutoregressivePolicy
from oat.tables.interval import Interval, percent
from oat.tables.table import Table
from oat.tokenizers.measures import ChunkBatch

NAME = "figure-fast-failure"
SUBSTITUTIONS = (0, 1, 2, 4, 8)
_SAMPLED_TITLE = f"{NAME}: sampled sequences that do not decode"
_DAMAGE_TITLE = f"{NAME}: random substitutions in encoded chunks"


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return what must be run: FAST's and OAT's policies, and their episodes."""
    return needed_evaluations()


def tables(study: Study) -> list[Table]:
    """Sample, damage and draw sequences of FAST and OAT, and return the tables of what does not decode."""
    policy = find_policy(study, FAST)
    oat = find_tokenizer(study, OAT)
    if not isinstance(policy, AutoregressivePolicy) or oat is None:
        absent = [name for name, model in (("FAST's policy", policy), ("OAT's tokenizer", oat)) if model is None]
        missing = Table(_SAMPLED_TITLE, ("method",), (), (*circumstances(study), *not_run(absent)))
        return [missing, malformed_table(study)]
    sampled = list(sample_sequences(study, policy))
    chunks = held_out_chunks(study, oat)  # the same for both, so that their errors can be compared
    tokenizers = {"FAST": policy.tokenizer, "OAT": oat}
    damages = [
        measure_damage(name, tokenizer, chunks, count)
        for count in SUBSTITUTIONS
        for name, tokenizer in tokenizers.items()
    ]
    steps = {method.name: training_steps(study, EvaluationRun(method)) for method in (FAST, OAT)}
    notes = (
        *circumstances(study),
        f"steps: FAST {steps['FAST']}, OAT {steps['OAT']} (tokenizer alone used)",
        _draw(study, sampled, damages, chunks),
    )
    return [_sampled_table(study, sampled, notes), _damage_table(study, damages, chunks, notes), malformed_table(study)]


def _sampled_table(study: Study, sampled: Sequence[SampledSequences], notes: Sequence[str]) -> Table:
    columns = ("FAST, sampled among", "temperature", "undecodable %", "95 %", "too few %", "too many %")
    rows = tuple(
        (
            *("all tokens" if each.top_k is None else f"the {each.top_k} most likely", f"{each.temperature:g}"),
            *(*percent(each.undecodable), f"{100 * each.too_few:.1f}", f"{100 * each.too_many:.1f}"),
        )
        for each in sampled
    )
    reading = "too few, too many: coefficients; what fails with as many as a chunk has was not ended by the policy"
    observed = f"{study.scale.chunks} held-out observations at most"
    return Table(_SAMPLED_TITLE, columns, rows, (observed, reading, *notes))


def _damage_table(study: Study, damages: Sequence[Damage], chunks: ChunkBatch, notes: Sequence[str]) -> Table:
    joints = _joints(study)
    columns = ("method", "tokens replaced", "undecodable %", "95 %", *(f"RMSE {joint}" for joint in joints))
    rows = tuple(
        (
            *(each.method, str(each.substitutions), *percent(each.undecodable)),
            *(f"{value:.3f}" for value in each.rmse.tolist()),
        )
        for each in damages
    )
    reading = (
        f"{len(chunks)} held-out chunks, in action units; FAST's sequences that do not decode are padded with zeros or "
        "truncated here, which the tokenizer itself never does",
        "equal numbers of tokens are replaced: of OAT's 8, 8 are all; of FAST's, a part",
    )
    return Table(_DAMAGE_TITLE, columns, rows, (*reading, *notes))


def _joints(study: Study) -> tuple[str, ...]:
    """Return the names of the actions' dimensions, or their numbers where the data set has no names."""
    episodes = open_dataset(study.data)
    return episodes.action_names or tuple(map(str, range(episodes.action_dim)))


def _draw(study: Study, sampled: Sequence[SampledSequences], damages: Sequence[Damage], chunks: ChunkBatch) -> str:
    """Draw failures by temperature and by substitutions, errors by joint, and one chunk as an example."""
    figure = new_figure(12, 7)
    joints = _joints(study)
    grid = figure.add_gridspec(2, 12)
    _draw_temperatures(figure.add_subplot(grid[0, :4]), sampled)
    _draw_substitutions(figure.add_subplot(grid[0, 4:8]), damages)
    _draw_joints(figure.add_subplot(grid[0, 8:]), damages, joints)
    _draw_example([figure.add_subplot(grid[1, 4 * n : 4 * n + 4]) for n in range(3)], damages, chunks, joints)
    return save_study_figure(study, NAME, figure)


def _plot_rates(axes: Any, places: Sequence[float], rates: Sequence[Interval], **look: Any) -> None:
    middle = [100 * rate.estimate for rate in rates]
    axes.errorbar(places, middle, whiskers(rates), marker="o", capsize=2, **look)


def _draw_temperatures(axes: Any, sampled: Sequence[SampledSequences]) -> None:
    for top_k, style in zip(TOP_KS, ("-", ":"), strict=True):
        chosen = [each for each in sampled if each.top_k == top_k]
        label = "among all tokens" if top_k is None else f"among the {top_k} most likely"
        rates = [each.undecodable for each in chosen]
        _plot_rates(axes, TEMPERATURES, rates, linestyle=style, color=COLORS["FAST"], label=label)
    axes.set(title="FAST policy: sampled chunks", xlabel="temperature", ylabel="undecodable, %", ylim=(-4, 104))
    axes.legend(fontsize=8)


def _draw_substitutions(axes: Any, damages: Sequence[Damage]) -> None:
    for name in ("FAST", "OAT"):
        rates = [each.undecodable for each in damages if each.method == name]
        _plot_rates(axes, range(len(rates)), rates, color=COLORS[name], label=name)
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
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])  # room for the legend
    axes.legend(fontsize=8, ncols=2, loc="upper center")


def _draw_example(panels: Sequence[Any], damages: Sequence[Damage], chunks: ChunkBatch, joints: Sequence[str]) -> None:
    """Draw the chunk with the median error after one substitution, among those that it makes undecodable."""
    damaged_once = {each.method: each for each in damages if each.substitutions == 1}
    fast = damaged_once["FAST"]
    candidates = torch.nonzero(fast.failed & chunks.valid.all(1))[:, 0]
    if len(candidates) == 0:  # a substitution may happen to keep the number of coefficients in every chunk
        candidates = torch.arange(len(chunks))
    errors = (fast.decoded - chunks.actions)[candidates].square().mean((1, 2))
    shown = int(candidates[errors.argsort()[len(errors) // 2]])
    curves = (
        ("demonstrated", chunks.actions),
        ("FAST, 1 replaced, forced", fast.decoded),
        ("OAT, 1 replaced", damaged_once["OAT"].decoded),
    )
    drawn = torch.stack([curve[shown] for _, curve in curves])
    limits = (float(drawn.min()) - 0.1, float(drawn.max()) + 0.1)  # the same scale in all panels
    for axes, (title, curve) in zip(panels, curves, strict=True):
        for dim, joint in enumerate(joints):
            axes.plot(curve[shown, :, dim], color=f"C{dim % 10}", label=joint)
        axes.set(title=title, xlabel="step", ylim=limits)
    panels[0].set_ylabel("action")
    panels[0].legend(fontsize=7)
