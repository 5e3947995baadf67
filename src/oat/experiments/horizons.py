"""table-horizons: how long a chunk should be, and how many tokens it should have (Fig. 5), in two regimes.

The paper executes half of each chunk, as one would in practice, and always 8 actions, which separates the effect of
what is predicted from that of how much of it is executed.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from oat.evaluation.claims import Claim
from oat.experiments.config import ScaleName
from oat.experiments.pictures import save_study_figure
from oat.experiments.study.methods import OAT, with_horizons
from oat.experiments.study.study import EvaluationRun, Study
from oat.experiments.success import Row, read_rows, study_table
from oat.io.pictures import new_figure
from oat.tables.interval import format_percent_range
from oat.tables.table import Table

NAME = "table-horizons"
_ACTION_HORIZONS: dict[ScaleName, Sequence[int]] = {"smoke": (8,), "cpu": (16, 32, 64), "paper": (8, 16, 32, 64)}
_LATENT_HORIZONS: dict[ScaleName, Sequence[int]] = {"smoke": (1, 2), "cpu": (2, 8), "paper": (1, 2, 4, 8)}
_REGIMES: dict[str, Callable[[int], int]] = {
    "half of the chunk is executed": lambda action_horizon: action_horizon // 2,
    "8 actions are executed": lambda _: 8,
}
_DARK = 60  # percent, from which the picture needs white letters


def evaluations(study: Study) -> list[EvaluationRun]:
    """Return every pair of horizons in both regimes; where these are the same, once."""
    # Half of 16 actions are the 8 of the other regime.
    return list(
        dict.fromkeys(
            evaluation
            for action in _ACTION_HORIZONS[study.scale.name]
            for latent in _LATENT_HORIZONS[study.scale.name]
            for executed in _REGIMES.values()
            for evaluation in _evaluations(study, action, latent, executed(action))
        )
    )


def tables(study: Study) -> list[Table]:
    """Return a table for each regime, and draw both, as the paper has them."""
    actions = _ACTION_HORIZONS[study.scale.name]
    latents = _LATENT_HORIZONS[study.scale.name]
    claims = (_claims_when_half_is_executed(actions, latents), _claims_when_as_much_is_executed(actions, latents))
    regimes = {
        title: [_row(study, action, latent, executed(action)) for action in actions for latent in latents]
        for title, executed in _REGIMES.items()
    }
    picture = _draw(study, regimes, actions, latents)
    made = []
    for (title, rows), claimed in zip(regimes.items(), claims, strict=True):
        table = study_table(study, f"{NAME}: {title}, success in %", rows, claims=claimed, alike=False)
        made.append(replace(table, notes=(*table.notes, picture)))
    return made


def _evaluations(study: Study, action: int, latent: int, execute: int) -> list[EvaluationRun]:
    usual = execute == OAT.action_horizon // 2  # what the benchmarks' protocols execute
    return study.ablations([with_horizons(action, latent)], execute=None if usual else execute)


def _row(study: Study, action: int, latent: int, execute: int) -> Row:
    """Return the row of a pair of horizons, acting from all tokens."""
    # The last row: OAT itself is evaluated from fewer tokens, too, and those rows come first.
    found = read_rows(study, _evaluations(study, action, latent, execute))
    return replace(found[-1], label=_label(action, latent))


def _label(action: int, latent: int) -> str:
    return f"H_a={action} H_l={latent}"


def _claims_when_half_is_executed(actions: Sequence[int], latents: Sequence[int]) -> list[Claim]:
    longer = [
        (f"longer chunks act worse, H_l={latent}", [_label(action, latent) for action in reversed(actions)])
        for latent in latents
        if len(actions) > 1
    ]
    more = [
        (f"more tokens act better, H_a={action}", [_label(action, latent) for latent in latents]) for action in actions
    ]
    return [*longer, *more]


def _claims_when_as_much_is_executed(actions: Sequence[int], latents: Sequence[int]) -> list[Claim]:
    moderate = OAT.action_horizon
    return [
        (f"H_a={moderate} acts better than {other}, H_l={latent}", (_label(other, latent), _label(moderate, latent)))
        for latent in latents
        for other in (actions[0], actions[-1])
        if other != moderate
    ]


def _draw(study: Study, regimes: Mapping[str, Sequence[Row]], actions: Sequence[int], latents: Sequence[int]) -> str:
    """Draw a square for each pair of horizons, empty where it was not run, and return the note that names the file."""
    figure = new_figure(1.2 + 1.5 * len(regimes) * len(latents), 1.4 + 0.7 * len(actions))
    panels = figure.subplots(1, len(regimes), squeeze=False)[0]
    for axes, (title, rows) in zip(panels, regimes.items(), strict=True):
        rates = [None if row.overall is None else row.overall.success for row in rows]
        percents = [float("nan") if rate is None else 100 * rate.estimate for rate in rates]
        axes.imshow(np.reshape(percents, (len(actions), len(latents))), cmap="Blues", vmin=0, vmax=100, aspect="auto")
        for place, (rate, percent) in enumerate(zip(rates, percents, strict=True)):
            text = "not run" if rate is None else f"{percent:.1f} %\n{format_percent_range(rate)}"
            ink = "white" if percent > _DARK else "black"
            axes.text(
                place % len(latents), place // len(latents), text, ha="center", va="center", color=ink, fontsize=8
            )
        axes.set_title(title, fontsize=9)
        axes.set_xticks(range(len(latents)), [f"H_l = {latent}" for latent in latents])
        axes.set_yticks(range(len(actions)), [f"H_a = {action}" for action in actions])
    figure.suptitle(f"OAT on {study.sim}: success with 95 % intervals", fontsize=10)
    return save_study_figure(study, NAME, figure)
