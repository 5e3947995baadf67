"""List the tokenizers that come with the package (`oat tokenizers`)."""

import json
from dataclasses import asdict

from rich.console import Console

from oat.tables.interval import NOT_AVAILABLE
from oat.tables.table import Table
from oat.tables.terminal import to_terminal
from oat.tokenizers.ready_made import READY_MADE, get_tokenizer

_PREFIXES = (1, 2, 4, 8)


def show_ready_made(as_json: bool) -> None:
    """Print what there is: for which actions, at what error, from which data."""
    table = ready_made_table()
    if as_json:
        Console(soft_wrap=True).print_json(json.dumps(asdict(table)))
    else:
        Console().print(to_terminal(table))


def ready_made_table() -> Table:
    """Return a row for each tokenizer, from what its checkpoint records."""
    columns = ("name", "chunk", "vocabulary", *(f"D_{k}" for k in _PREFIXES), "episodes", "steps")
    notes = [f"{name}: {each.about}. {each.licence}." for name, each in READY_MADE.items()]
    reading = "D_K: mean squared error of K tokens on held-out episodes, in model space (actions in [−1, 1])"
    return Table("oat.get_tokenizer(name)", columns, tuple(map(_row, READY_MADE)), (reading, *notes))


def _row(name: str) -> tuple[str, ...]:
    tokenizer = get_tokenizer(name)
    record = tokenizer.training_record
    errors = {} if record.measures is None else record.measures.mse_of_prefix
    return (
        name,
        f"{tokenizer.action_horizon} × {tokenizer.action_dim}",
        f"{tokenizer.vocab_size:,}",
        *(f"{errors[k]:.4f}" if k in errors else NOT_AVAILABLE for k in _PREFIXES),
        NOT_AVAILABLE if record.episodes is None else f"{record.episodes:,}",
        NOT_AVAILABLE if record.step is None else f"{record.step:,}",
    )
