"""Remarks to whoever runs a command, apart from its results."""

from rich.console import Console


def note(text: str) -> None:
    """Print a remark on standard error, so that it does not mix with what the command prints."""
    Console(stderr=True, soft_wrap=True).print(f"note: {text}", highlight=False, markup=False)
