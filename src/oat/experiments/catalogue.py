"""The experiments by name: a new one is a file and a line here. Importing this imports none of them, and no torch."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CatalogueEntry:
    """Say what an experiment shows, and which module makes it."""

    about: str
    module: str
    """Module with `evaluations(study)`, `tables(study)` and, where it takes more than runs, `measure(study)`."""
    needs_models: bool = False
    """Whether its tables are made from models; others are made from records, which are published with a study."""
    only_in: str | None = None
    """The one simulator that it is made in, where it means nothing in others."""
    any_decoding: bool = False
    """Whether --decoding paper makes it, too: a table of success whose methods decode in one way throughout."""
    several_budgets: bool = False
    """Whether it trains methods for several numbers of minutes, among which --minutes chooses."""


EXPERIMENTS: dict[str, CatalogueEntry] = {
    "table-sim": CatalogueEntry("simulation benchmarking (Table I)", "oat.experiments.simulation", any_decoding=True),
    "table-overall": CatalogueEntry(
        "success over the tasks of all benchmarks that table-sim was run in (Fig. 1)", "oat.experiments.overall"
    ),
    "table-latency": CatalogueEntry("tokens and milliseconds per chunk (Table II)", "oat.experiments.latency"),
    "table-ordering": CatalogueEntry("OAT against OAT× (Table III)", "oat.experiments.ordering", any_decoding=True),
    "table-policy": CatalogueEntry(
        "what a policy gains by knowing its tokens (not in the paper)", "oat.experiments.policy_knowledge"
    ),
    "table-errors": CatalogueEntry(
        "where the error of a policy's chunks comes from (not in the paper)",
        "oat.experiments.error_sources",
        needs_models=True,
    ),
    "table-drift": CatalogueEntry(
        "how far policies stray from demonstrated states (not in the paper)", "oat.experiments.drift", needs_models=True
    ),
    "table-decoding": CatalogueEntry(
        "ways to choose among tokens and sampled chunks (not in the paper)", "oat.experiments.decoding_rules"
    ),
    "table-depth": CatalogueEntry("as many tokens as a chunk needs (not in the paper)", "oat.experiments.depth"),
    "table-horizons": CatalogueEntry(
        "action and token horizons (Fig. 5)", "oat.experiments.horizons", any_decoding=True
    ),
    "table-codebook": CatalogueEntry("FSQ levels (Table IV)", "oat.experiments.codebook", any_decoding=True),
    "table-real": CatalogueEntry("trials of a robot (Table V)", "oat.experiments.real"),
    "figure-teaser": CatalogueEntry(
        "properties, inference and success (Fig. 1)", "oat.experiments.teaser", needs_models=True
    ),
    "figure-coarse-to-fine": CatalogueEntry(
        "reconstructions and their execution (Fig. 2)", "oat.experiments.coarse_to_fine", needs_models=True
    ),
    "figure-modelability": CatalogueEntry(
        "what predicts success (sections IV-C, V-B)", "oat.experiments.modelability", needs_models=True
    ),
    "figure-fast-failure": CatalogueEntry(
        "sequences that do not decode (appendix B)", "oat.experiments.fast_failure", needs_models=True
    ),
    "figure-modes": CatalogueEntry(
        "two ways round an obstacle, with --sim detour", "oat.experiments.modes", only_in="detour"
    ),
    "figure-learning": CatalogueEntry(
        "success against minutes of training", "oat.experiments.learning", several_budgets=True
    ),
}
