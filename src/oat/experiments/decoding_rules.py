"""table-decoding: ways to choose tokens and chunks, against plain sampling and greedy; and chunks that come late."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from oat.evaluation.claims import Claim
from oat.evaluation.records import EpisodeRecord
from oat.experiments.decoding_timings import read_decoding_timings, time_decodings
from oat.experiments.study.decodings import DecodingRun
from oat.experiments.study.methods import DP, OAT, QUEST, UNORDERED, Method
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import Row, study_table, training_steps, with_seed
from oat.tables.success import COST_COLUMNS
from oat.tables.table import Table

NAME = "table-decoding"
_SAMPLES = 8
_FEW = 4  # cost less than twice one
_EXECUTED = (None, 8)  # the protocol's 16, and half as many
_DELAYS = (0, 2, 4, 8)
_TOKENS: dict[str, Any] = {"decoding": "tokens"}  # without a remainder: what the tokens alone decide
_SEVERAL: dict[str, Any] = {"samples": _SAMPLES}

SAMPLING = DecodingRun("sampled", "sampled", {"decoding": "paper"})
GREEDY = DecodingRun("greedy", "greedy", {**_TOKENS, "greedy": True})
USUAL = DecodingRun("as trained", "usual")
_TOKEN_RULES = (
    SAMPLING,
    GREEDY,
    DecodingRun("T = 0.5", "t0.5", {**_TOKENS, "temperature": 0.5}),
    DecodingRun("T = 1 … 0.25", "t-falling", {**_TOKENS, "temperature": (1.0, 0.7, 0.5, 0.25)}),
    DecodingRun(f"likelihood of {_SAMPLES}", "likelihood", {**_TOKENS, **_SEVERAL, "choose": "likelihood"}),
    DecodingRun(f"medoid of {_SAMPLES}", "medoid", {**_TOKENS, **_SEVERAL, "choose": "medoid"}),
    DecodingRun(f"coherent of {_SAMPLES}", "coherent", {**_TOKENS, **_SEVERAL, "choose": "coherent"}),
)
_PREFIX_RULES = (
    DecodingRun(f"contrast of {_SAMPLES}", "contrast", {**_TOKENS, **_SEVERAL, "choose": "contrast"}),
    DecodingRun(f"medoid of {_FEW}", "medoid-few", {**_TOKENS, "samples": _FEW, "choose": "medoid"}),
    DecodingRun(f"medoid of {_SAMPLES}, remainder", "medoid-remainder", {**_SEVERAL, "choose": "medoid"}),
)
_DENOISING_RULES = (
    USUAL,
    DecodingRun(f"medoid of {_SAMPLES}", "medoid", {**_SEVERAL, "choose": "medoid"}),
    DecodingRun(f"coherent of {_SAMPLES}", "coherent", {**_SEVERAL, "choose": "coherent"}),
)
_RULES: dict[Method, Sequence[DecodingRun]] = {
    OAT: (*_TOKEN_RULES, *_PREFIX_RULES, USUAL),
    UNORDERED: _TOKEN_RULES,
    QUEST: _TOKEN_RULES,
    DP: _DENOISING_RULES,
}


def _late(delay: int) -> Iterator[DecodingRun]:
    """Yield ways to decode chunks that come so many steps late."""
    late = {**_TOKENS, "delay": delay}
    several = {**late, **_SEVERAL}
    yield DecodingRun(f"greedy, {delay} late", f"greedy-late{delay}", {**late, "greedy": True})
    yield DecodingRun(f"medoid of {_SAMPLES}, {delay} late", f"medoid-late{delay}", several)
    coherent = {**several, "choose": "coherent"}
    yield DecodingRun(f"coherent of {_SAMPLES}, {delay} late", f"coherent-late{delay}", coherent)
    if delay:
        commit = {**several, "commit": delay}
        label = f"medoid of {_SAMPLES}, committed, {delay} late"
        yield DecodingRun(label, f"commit-late{delay}", commit)


def _small(study: Study) -> bool:
    """Return whether the study only shows that everything runs."""
    return study.scale.name == "smoke"


def _methods(study: Study) -> dict[Method, Sequence[DecodingRun]]:
    return {OAT: _RULES[OAT][5:6]} if _small(study) else _RULES


def _compared(study: Study, execute: int | None) -> list[EvaluationRun]:
    return [
        replace(run, decoding=rule, execute=execute)
        for method, rules in _methods(study).items()
        for rule in rules
        for run in study.evaluations((method,))
    ]


def _delayed(study: Study) -> list[EvaluationRun]:
    rules = [rule for delay in _DELAYS for rule in _late(delay)]
    if _small(study):
        rules = [rule for rule in rules if rule.options.get("commit") == _DELAYS[1]]
    return [replace(run, decoding=rule) for rule in rules for run in study.evaluations((OAT,))]


def _regimes(study: Study) -> Sequence[int | None]:
    return _EXECUTED[:1] if _small(study) else _EXECUTED


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return every rule for every method it means something to, executing all and half, and delays of OAT's chunks."""
    compared = [run for execute in _regimes(study) for run in _compared(study, execute)]
    return [*compared, *_delayed(study)]


def label(evaluation: EvaluationRun) -> str:
    """Return what tables call a method that decodes in some way."""
    method = evaluation.method
    assert evaluation.decoding is not None
    return f"{method.label(method.prefixes[-1] if method.prefixes else None)} {evaluation.decoding.label}"


def read_decoding_rows(study: Study, runs: Sequence[EvaluationRun]) -> list[Row]:
    """Return a row for each method and way to decode, with what a chunk takes where that was timed."""
    rows: dict[str, Row] = {}
    taken = read_decoding_timings(study.folder)
    for run in runs:
        name = label(run)
        made = Row(name, (), training_steps(study, run), milliseconds=taken.get(name))
        rows[name] = with_seed(rows.setdefault(name, made), study, run, tuple(_named_alike(study, run)))
    return list(rows.values())


def _named_alike(study: Study, run: EvaluationRun) -> Iterator[EpisodeRecord]:
    """Yield an evaluation's records by the name of its way to decode.

    Their own names hold numbers that differ between trainings, such as a bound that a head is calibrated for.
    """
    assert run.decoding is not None
    for record in study.all_records(run):
        yield replace(record, key=replace(record.key, decoding=run.decoding.label))


def tables(study: Study) -> list[Table]:
    """Return a table for each number of executed actions, and one of chunks that come late."""
    made = []
    for execute in _regimes(study):
        title = f"{NAME}: {execute or 'the usual number of'} actions executed, success in %"
        rows = read_decoding_rows(study, _compared(study, execute))
        made.append(study_table(study, title, rows, claims=tuple(_claims(rows)), more=COST_COLUMNS))
    rows = read_decoding_rows(study, _delayed(study))
    title = f"{NAME}: chunks that come late, success in %"
    late = study_table(study, title, rows, claims=tuple(_late_claims(rows)), alike=False, more=COST_COLUMNS)
    return [*made, late]


def _claims(rows: Sequence[Row]) -> Iterator[Claim]:
    """Yield the claims that each of OAT's rules is better than sampling, and than the most likely tokens."""
    known = {row.label for row in rows}
    for rule in (*_TOKEN_RULES[2:], *_PREFIX_RULES[:2]):
        better = f"OAT_8 {rule.label}"
        for usual in (SAMPLING, GREEDY):
            worse = f"OAT_8 {usual.label}"
            if better in known and worse in known:
                yield f"{rule.label} acts better than {usual.label}", (worse, better)


def _late_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    known = {row.label for row in rows}
    for delay in _DELAYS[1:]:
        without = f"OAT_8 medoid of {_SAMPLES}, {delay} late"
        committed = f"OAT_8 medoid of {_SAMPLES}, committed, {delay} late"
        if without in known and committed in known:
            yield f"committing acts better, {delay} steps late", (without, committed)


def measure(study: Study) -> None:
    """Time one chunk of every way to decode that has not been timed yet."""
    for method, rules in _methods(study).items():
        names = {label(EvaluationRun(method, decoding=rule)): rule for rule in rules}
        time_decodings(study, method, names)
