"""table-decoding: ways to choose tokens and chunks, against plain sampling and greedy; and chunks that come late."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from oat.data.provenance import read_demonstrator
from oat.evaluation.claims import Claim
from oat.evaluation.records import EpisodeRecord
from oat.experiments.decoding_timings import read_decoding_timings, time_decodings
from oat.experiments.study.decodings import DecodingRun
from oat.experiments.study.methods import DP, OAT, QUEST, UNORDERED, Method
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import Row, study_table, training_steps, with_seed
from oat.sims import find_simulator
from oat.tables.success import COST_COLUMNS
from oat.tables.table import Table

NAME = "table-decoding"
_SAMPLES = 8
_FEW = 4  # take less than twice the time of one
_EXECUTED = (None, 8)  # the protocol's 16, and half as many
_DELAYS = (0, 2, 4, 8)
_TOKENS: dict[str, Any] = {"decoding": "tokens"}  # without a remainder: what the tokens alone decide
_SEVERAL: dict[str, Any] = {"samples": _SAMPLES}

SAMPLING = DecodingRun("sampled", "sampled", {"decoding": "paper"})
GREEDY = DecodingRun("greedy", "greedy", {**_TOKENS, "greedy": True})
_MEDOID = DecodingRun(f"medoid of {_SAMPLES}", "medoid", {**_TOKENS, **_SEVERAL, "choose": "medoid"})
_USUAL = None  # as it was trained for, which table-sim and table-ordering have the records of
_TOKEN_RULES = (
    GREEDY,
    SAMPLING,
    _MEDOID,
    DecodingRun(f"coherent of {_SAMPLES}", "coherent", {**_TOKENS, **_SEVERAL, "choose": "coherent"}),
)
_LIKELIHOOD = DecodingRun(f"likelihood of {_SAMPLES}", "likelihood", {**_TOKENS, **_SEVERAL, "choose": "likelihood"})
_ORDERED_RULES = (
    DecodingRun(f"medoid of {_FEW}", "medoid-few", {**_TOKENS, "samples": _FEW, "choose": "medoid"}),
    DecodingRun(f"contrast of {_SAMPLES}", "contrast", {**_TOKENS, **_SEVERAL, "choose": "contrast"}),
    DecodingRun("T = 1 … 0.25", "t-falling", {**_TOKENS, "temperature": (1.0, 0.7, 0.5, 0.25)}),
)
_EXACT = DecodingRun("made exact by regression", "exact", {"greedy": True, "remainder": True})
"""As policies of scripted demonstrations are trained to; where people demonstrated, it is a way like the others."""
_MEDOID_REMAINDER = DecodingRun(
    f"medoid of {_SAMPLES}, remainder", "medoid-remainder", {**_SEVERAL, "choose": "medoid"}
)
_DENOISING_RULES = (
    _USUAL,
    DecodingRun(f"medoid of {_SAMPLES}", "medoid", {**_SEVERAL, "choose": "medoid"}),
    DecodingRun(f"coherent of {_SAMPLES}", "coherent", {**_SEVERAL, "choose": "coherent"}),
)
_Rules = Mapping[Method, Sequence[DecodingRun | None]]
_HALF: _Rules = {
    OAT: (_USUAL, *_TOKEN_RULES, *_ORDERED_RULES, _LIKELIHOOD),
    UNORDERED: (_USUAL, *_TOKEN_RULES, _LIKELIHOOD),
    QUEST: (_USUAL, *_TOKEN_RULES, _LIKELIHOOD),
    DP: _DENOISING_RULES,
}
"""What is compared where half as many actions are executed; the rules that matter most come first."""
_WHOLE: _Rules = {**_HALF, OAT: (*_HALF[OAT], _MEDOID_REMAINDER)}


def _late(delay: int) -> Iterator[DecodingRun]:
    """Yield ways to decode chunks that come so many steps late; without a delay they are those of above."""
    if not delay:
        yield from (replace(rule, label=f"{rule.label}, 0 late") for rule in (GREEDY, _MEDOID))
        return
    late = {**_TOKENS, "delay": delay}
    several = {**late, **_SEVERAL}
    yield DecodingRun(f"greedy, {delay} late", f"greedy-late{delay}", {**late, "greedy": True})
    yield DecodingRun(f"medoid of {_SAMPLES}, {delay} late", f"medoid-late{delay}", several)
    committed = {**several, "commit": delay}
    yield DecodingRun(f"medoid of {_SAMPLES}, committed, {delay} late", f"commit-late{delay}", committed)
    guided = {**committed, "choose": "guided"}
    yield DecodingRun(f"guided of {_SAMPLES}, committed, {delay} late", f"guided-late{delay}", guided)


def _small(study: Study) -> bool:
    """Return whether the study only shows that everything runs."""
    return study.scale.name == "smoke"


def people_demonstrated(study: Study) -> bool:
    """Return whether demonstrations are people's, as far as is known."""
    simulator = find_simulator(study.sim)
    return simulator.who_demonstrated(read_demonstrator(study.data) if study.given_data else None) != "scripted"


def _rules(study: Study, execute: int | None) -> _Rules:
    if _small(study):
        return {OAT: (_MEDOID,)}
    rules = _WHOLE if execute is None else _HALF
    if not people_demonstrated(study):
        return rules
    # Tokens alone are what people's policies act from, so that regression is a way of its own.
    alone = {method: tuple(way for way in ways if way is not _MEDOID_REMAINDER) for method, ways in rules.items()}
    return {method: ways if method is DP else (*ways, _EXACT) for method, ways in alone.items()}


def _compared(study: Study, execute: int | None) -> list[EvaluationRun]:
    rules = _rules(study, execute)
    return [
        replace(run, decoding=rule, execute=execute) for run in study.evaluations(rules) for rule in rules[run.method]
    ]


def _delayed(study: Study) -> list[EvaluationRun]:
    """Return the evaluations of chunks that come late, with as many training seeds as ablations have."""
    rules = [rule for delay in _DELAYS for rule in _late(delay)]
    if _small(study):
        rules = [rule for rule in rules if rule.options.get("commit") == _DELAYS[1]]
    return [replace(run, decoding=rule) for run in study.ablations((OAT,)) for rule in rules]


def _regimes(study: Study) -> Sequence[int | None]:
    return _EXECUTED[:1] if _small(study) else _EXECUTED


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return every rule for every method it means something to, executing all and half, and delays of OAT's chunks.

    Each is there once, though several tables may show it. The first training seed of everything comes first, and of a
    seed OAT, so that a study that is cut short has the comparisons that matter most.
    """
    compared = [run for execute in _regimes(study) for run in _compared(study, execute)]
    by_name = {run.name: run for run in (*compared, *_delayed(study))}
    return sorted(by_name.values(), key=lambda run: (run.seed, run.method is not OAT))


def label(evaluation: EvaluationRun) -> str:
    """Return what tables call a method that decodes in some way."""
    return f"{evaluation.method.label(_longest(evaluation.method))} {_way(evaluation)}"


def _longest(method: Method) -> int | None:
    return method.prefixes[-1] if method.prefixes else None


def _way(evaluation: EvaluationRun) -> str:
    return "as trained" if evaluation.decoding is None else evaluation.decoding.label


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
    # The main table's evaluations act from several numbers of tokens; ways to decode are compared with all of them.
    records = study.records(run).get(_longest(run.method), []) if run.decoding is None else study.all_records(run)
    for record in records:
        yield replace(record, key=replace(record.key, decoding=_way(run)))


def tables(study: Study) -> list[Table]:
    """Return a table for each number of executed actions, and one of chunks that come late."""
    made = []
    for execute in _regimes(study):
        title = f"{NAME}: {execute or 'the usual number of'} actions executed, success in %"
        rows = read_decoding_rows(study, _compared(study, execute))
        # Of rules that were not run a note says so already.
        run = {row.label for row in rows if row.records}
        claims = tuple((claim, chain) for claim, chain in _claims(study, execute) if chain[-1] in run)
        made.append(study_table(study, title, rows, claims=claims, more=COST_COLUMNS))
    rows = read_decoding_rows(study, _delayed(study))
    title = f"{NAME}: chunks that come late, success in %"
    late = study_table(study, title, rows, claims=tuple(_late_claims(rows)), alike=False, more=COST_COLUMNS)
    return [*made, late]


def _claims(study: Study, execute: int | None) -> Iterator[Claim]:
    """Yield the claims that each rule is better than plain sampling, and than the most likely tokens.

    Where people demonstrated, policies act from tokens alone anyway, so that rules must be better than that, too.
    """
    people = people_demonstrated(study)
    for method, rules in _rules(study, execute).items():
        for rule in rules:
            usual = (_USUAL,) if people and rule not in (_USUAL, SAMPLING, GREEDY) and method is not DP else ()
            for other in (*_plain(method, rule), *usual):
                better = EvaluationRun(method, decoding=rule)
                worse = EvaluationRun(method, decoding=other)
                yield f"{label(better)} acts better than {_way(worse)}", (label(worse), label(better))


def _plain(method: Method, rule: DecodingRun | None) -> Sequence[DecodingRun | None]:
    """Return the ways that a rule must be better than; none where it is one of them."""
    if rule in (SAMPLING, GREEDY) or (rule is _USUAL and method is DP):
        return ()
    # Diffusion knows no other way, and a remainder is held against a remainder.
    return (_USUAL,) if method is DP or rule is _MEDOID_REMAINDER else (SAMPLING, GREEDY)


def _late_claims(rows: Sequence[Row]) -> Iterator[Claim]:
    known = {row.label for row in rows}
    for delay in _DELAYS[1:]:
        without = f"OAT_8 medoid of {_SAMPLES}, {delay} late"
        committed = f"OAT_8 medoid of {_SAMPLES}, committed, {delay} late"
        guided = f"OAT_8 guided of {_SAMPLES}, committed, {delay} late"
        if without in known and committed in known:
            yield f"committing acts better, {delay} steps late", (without, committed)
        if committed in known and guided in known:
            yield f"guiding acts better than choosing, {delay} steps late", (committed, guided)
        if without in known and guided in known:
            yield f"guiding acts better than neither, {delay} steps late", (without, guided)


def measure(study: Study) -> None:
    """Time one chunk of every way to decode that has not been timed yet."""
    for method, rules in _rules(study, None).items():
        runs = [EvaluationRun(method, decoding=rule) for rule in rules]
        time_decodings(study, method, {label(run): run for run in runs})
    late = [EvaluationRun(OAT, decoding=rule) for delay in _DELAYS[1:] for rule in _late(delay)]
    time_decodings(study, OAT, {label(run): run for run in late if not _small(study)})
