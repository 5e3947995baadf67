"""table-depth: how many tokens a chunk needs: a fixed number, as many as a head asks for, or as many at random."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import ceil, floor
from typing import Any

import numpy as np

from oat.errors import InvalidOption
from oat.evaluation.claims import Claim
from oat.evaluation.comparisons import compare_policies, shared_conditions
from oat.evaluation.token_courses import mean_course
from oat.experiments.decoding_rules import GREEDY, label, people_demonstrated, read_decoding_rows
from oat.experiments.decoding_timings import read_decoding_timings, time_decodings
from oat.experiments.pictures import save_study_figure, whiskers
from oat.experiments.study.decodings import DecodingRun
from oat.experiments.study.methods import OAT
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import FEW, Row, deciding_measure, not_run, study_table
from oat.io.pictures import new_figure
from oat.tables.success import COST_COLUMNS
from oat.tables.table import Table

NAME = "table-depth"
_SAMPLED = {"decoding": "tokens"}  # at the temperature of policies that people taught
_LONGEST = OAT.prefixes[-1]
# Relative to each head's own errors: benchmarks differ in units, and trainings in how well they tokenize.
_SETTINGS = ("residual=10%", "residual=30%", "residual=60%", "value=20%", "value=60%", "value=150%")
_HINDSIGHT = ("hindsight=10%", "hindsight=30%")  # of the error that one token has
_FIRST = ("residual=30%", "residual=60%", "value=60%")  # should take at most half of the tokens, as the goal wants
_BINS = 20  # of an episode, for tokens over time
_HALF = 8  # actions executed of each chunk, in the second table; the protocol's 16 in the first


def _run(study: Study, label: str, slug: str, **options: Any) -> DecodingRun:
    """Return a way to decode from tokens alone, drawn as policies draw them that learned from such demonstrations.

    A remainder would hide what tokens add. Where people demonstrated, the most likely tokens repeat themselves where
    they got stuck, and random numbers of them do not: against those as a control a rule would lose for that.
    """
    if people_demonstrated(study):
        return DecodingRun(label, f"{slug}-sampled", {**_SAMPLED, **options})
    return DecodingRun(label, slug, {**GREEDY.options, **options})


def _slug(rule: str) -> str:
    return rule.replace("=", "-").rstrip("%")


def _fixed(study: Study, tokens: int) -> DecodingRun:
    if tokens == _LONGEST and not people_demonstrated(study):
        return replace(GREEDY, label=f"K = {tokens}")  # whose episodes table-decoding has, too
    return _run(study, f"K = {tokens}", f"fixed{tokens}", num_tokens=(tokens,))


def _adaptive(study: Study) -> list[DecodingRun]:
    """Return the rules that decide for each chunk, at several settings."""
    chosen = _FIRST[:1] if study.scale.name == "smoke" else _SETTINGS
    runs = [_run(study, rule, _slug(rule), stop=(rule,)) for rule in chosen]
    return [replace(run, needs_head=True, film=run.label in _FIRST) for run in runs]


def _control(study: Study, rule: DecodingRun) -> DecodingRun:
    """Return the control of a rule: as many tokens as it took, but at random."""
    run = _run(study, f"random as {rule.label}", f"random-{_slug(rule.label)}")
    return replace(run, matched_to=rule.slug)


def _in_hindsight(study: Study) -> list[DecodingRun]:
    """Return what no rule can know: the fewest tokens that lead to nearly the actions that all lead to."""
    chosen = _HINDSIGHT[:1] if study.scale.name == "smoke" else _HINDSIGHT
    return [replace(_run(study, rule, _slug(rule), stop=(rule,)), needs_head=True) for rule in chosen]


def _rules(study: Study) -> list[DecodingRun]:
    """Return every number of tokens, every rule beside its control, and hindsight, as tables show them."""
    numbers = (_LONGEST,) if study.scale.name == "smoke" else range(1, _LONGEST + 1)
    fixed = [_fixed(study, number) for number in numbers]
    decided = [each for rule in _adaptive(study) for each in (rule, _control(study, rule))]
    return [*fixed, *decided, *_in_hindsight(study)]


def _importance(rule: DecodingRun) -> int:
    """Return in which turn a rule is run: first what decides the goals, then fixed numbers, then other settings."""
    if rule.label in (f"K = {_LONGEST}", *_FIRST) or rule.label.endswith(_FIRST):
        return 0
    return 1 if rule.label.startswith("K = ") else 2


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return OAT from every number of tokens, by every rule, and each rule's control, training seed by seed.

    Of a seed, executing as many actions as the protocol wants comes before executing half of them.
    """
    runs = [run for execute in _regimes(study) for run in _evaluations(study, execute)]
    return sorted(runs, key=lambda run: run.seed)


def _evaluations(study: Study, execute: int | None) -> list[EvaluationRun]:
    rules = sorted(_rules(study), key=_importance)
    return [replace(run, decoding=rule, execute=execute) for run in study.evaluations((OAT,)) for rule in rules]


def _regimes(study: Study) -> tuple[int | None, ...]:
    return (None,) if study.scale.name == "smoke" else (None, _HALF)


def tables(study: Study) -> list[Table]:
    """Return a table of success against tokens for each number of executed actions that was begun, and draw them."""
    shown = [label(EvaluationRun(OAT, decoding=rule)) for rule in _rules(study)]
    found = {
        execute: sorted(read_decoding_rows(study, _evaluations(study, execute)), key=lambda row: shown.index(row.label))
        for execute in _regimes(study)
    }
    begun = [execute for execute, rows in found.items() if any(row.records for row in rows)]
    chosen = begun or [*found][:1]
    others = not_run([_executed(execute) for execute in found if execute not in chosen])
    return [_table(study, execute, found[execute], others) for execute in chosen]


def _executed(execute: int | None) -> str:
    return f"{execute or 'the usual number of'} actions executed"


def _table(study: Study, execute: int | None, rows: Sequence[Row], others: Sequence[str]) -> Table:
    """Return one table, and draw it, and where along an episode tokens were used."""
    claims = tuple(_claims(study))
    title = f"{NAME}: success against tokens per chunk, {_executed(execute)}, in %"
    table = study_table(study, title, rows, claims=claims, more=COST_COLUMNS)
    drawn = (_draw(study, rows, execute), _draw_over_time(study, rows, execute))
    return replace(
        table,
        notes=(
            *table.notes,
            *others,
            *_within_a_point(study, rows),
            *_beside_fixed(study, rows),
            *_time_of_head(study),
            *drawn,
        ),
    )


def _asking(study: Study) -> DecodingRun:
    """Return the way to decode that asks a head after every token, and never stops by what it says."""
    return replace(_run(study, f"K = {_LONGEST}, asking a head", "asking", stop=("residual=1e-9",)), needs_head=True)


def _time_of_head(study: Study) -> Iterator[str]:
    """Yield how much longer a chunk takes whose head is asked after every token, where that was timed."""
    taken = read_decoding_timings(study.folder)
    asking, plain = (
        taken.get(label(EvaluationRun(OAT, decoding=rule))) for rule in (_asking(study), _fixed(study, _LONGEST))
    )
    if asking is not None and plain is not None:
        yield f"asking a head after every token: {asking:.1f} ms for a chunk of {_LONGEST} tokens, {plain:.1f} without"


def measure(study: Study) -> None:
    """Time one chunk of every number of tokens, and one whose head is asked after every token."""
    execute = next((each for each in _regimes(study) if study.finished(EvaluationRun(OAT, 0, each).head)), None)
    runs = [EvaluationRun(OAT, decoding=rule) for rule in _rules(study) if rule.label.startswith("K = ")]
    asking = EvaluationRun(OAT, execute=execute, decoding=_asking(study))
    time_decodings(study, OAT, {label(run): run for run in (*runs, asking)})


def _file(name: str, execute: int | None) -> str:
    return name if execute is None else f"{name}-execute{execute}"


def _claims(study: Study) -> Iterator[Claim]:
    for rule in _adaptive(study):
        control = f"OAT_8 {_control(study, rule).label}"
        yield f"{rule.label} acts better than as many tokens at random", (control, f"OAT_8 {rule.label}")


def _within_a_point(study: Study, rows: Sequence[Row]) -> Iterator[str]:
    """Yield for each rule whether it comes within a point of all tokens with half of them."""
    found = {row.label: row for row in rows if row.records}
    whole = found.get(f"OAT_8 K = {_LONGEST}")
    for rule in _adaptive(study):
        here = found.get(f"OAT_8 {rule.label}")
        if whole is not None and here is not None:
            goal = f"goal: {rule.label} within a point of K = {_LONGEST} with half its tokens"
            yield f"{goal}: {compare_goal(whole, here)}"


def compare_goal(whole: Row, here: Row) -> str:
    """Return whether the goal is reached where both have acted: a study that was cut short has more seeds of one."""
    measure = deciding_measure((whole, here))
    try:
        gap = 100 * compare_policies(whole.records, here.records, measure=measure).difference.estimate
    except InvalidOption as reason:
        return f"undecided, {reason}"
    overall = here.overall
    assert overall is not None
    held = gap >= -1 and overall.tokens_per_chunk <= _LONGEST / 2
    outcome = "held" if held else "not held"
    if min(len(whole.records), len(here.records)) < FEW:
        outcome = "undecided, too few episodes"
    return f"{outcome} ({gap:+.1f} points, {overall.tokens_per_chunk:.2f} tokens){_by(measure)}"


def _beside_fixed(study: Study, rows: Sequence[Row]) -> Iterator[str]:
    """Yield for each rule how it does beside the fixed numbers of tokens just below and above its mean."""
    found = {row.label: row for row in rows if row.records}
    measure = deciding_measure(rows)
    for rule in _adaptive(study):
        here = found.get(f"OAT_8 {rule.label}")
        if here is None or here.overall is None:
            continue
        tokens = here.overall.tokens_per_chunk
        told = []
        for number in sorted({floor(tokens), ceil(tokens)}):
            fixed = found.get(f"OAT_8 K = {number}")
            if fixed is not None and shared_conditions(fixed.records, here.records):
                compared = compare_policies(fixed.records, here.records, measure=measure)
                told.append(
                    f"{100 * compared.difference.estimate:+.1f} points (p = {compared.p_value:.2g}) to K = {number}"
                )
        if told:
            yield f"{rule.label} with {tokens:.2f} tokens{_by(measure)}: {', '.join(told)}"


def _by(measure: str) -> str:
    return " by score" if measure == "score" else ""


def _draw(study: Study, rows: Sequence[Row], execute: int | None) -> str:
    """Draw success, or the score, against mean tokens: fixed numbers as a line, rules and controls as points."""
    measure = deciding_measure(rows)
    figure = new_figure(6.5, 4.2)
    axes = figure.subplots()
    begins = {"residual": "residual=", "value": "value=", "hindsight": "hindsight="}
    groups = {"fixed K": "K = ", **begins, "matched at random": "random as "}
    for name, begin in groups.items():
        overall = [row.overall for row in rows if row.label.removeprefix("OAT_8 ").startswith(begin)]
        known = sorted((each for each in overall if each is not None), key=lambda each: each.tokens_per_chunk)
        style: dict[str, Any] = {"linestyle": "-" if name == "fixed K" else "none", "capsize": 3}
        # Controls lie on the rules that they belong to.
        style["marker"] = "x" if begin.startswith("random") else "o"
        rates = [each.score if measure == "score" and each.score is not None else each.success for each in known]
        axes.errorbar(
            [each.tokens_per_chunk for each in known],
            [100 * rate.estimate for rate in rates],
            yerr=whiskers(rates),
            label=name if known else f"{name}: not run",
            alpha=0.8,
            **style,
        )
    axes.set(xlabel="mean tokens per chunk", ylabel=f"{measure}, %", ylim=(-2, 102))
    executed = "" if execute is None else f", {execute} actions executed"
    axes.set_title(f"OAT on {study.sim}{executed}: {measure} against tokens, with 95 % intervals", fontsize=10)
    axes.legend(fontsize=8)
    return save_study_figure(study, _file(NAME, execute), figure)


def _draw_over_time(study: Study, rows: Sequence[Row], execute: int | None) -> str:
    """Draw how many tokens chunks had along an episode, for each rule and task."""
    tasks = study.tasks
    figure = new_figure(3.4 * max(2, len(tasks)), 3.2)
    panels = figure.subplots(1, len(tasks), sharey=True, squeeze=False)[0]
    adaptive = {f"OAT_8 {rule.label}" for rule in _adaptive(study)}
    for axes, task in zip(panels, tasks, strict=True):
        for row in rows:
            courses = [each.chunk_tokens for each in row.records if each.key.task == task and each.chunk_tokens]
            if row.label in adaptive and courses:
                axes.plot(
                    np.linspace(0, 100, _BINS), mean_course(courses, _BINS), label=row.label.removeprefix("OAT_8 ")
                )
        axes.set(title=task, xlabel="% of the episode", ylim=(0.5, _LONGEST + 0.5))
    panels[0].set_ylabel("tokens per chunk")
    if panels[0].get_legend_handles_labels()[0]:
        panels[0].legend(fontsize=7)
    return save_study_figure(study, _file(f"{NAME}-over-time", execute), figure)
