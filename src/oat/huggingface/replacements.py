"""Stand-ins for what the stand-alone file leaves behind: shapes, flags, a progress bar, its own source."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transformers.utils.logging import tqdm


class Shaped:
    """Stand for jaxtyping's annotations: an array's type, without the shape, which is there for readers."""

    def __class_getitem__(cls, array_and_shape: tuple[Any, str]) -> Any:
        return array_and_shape[0]


# The annotations that gathered modules use; gathering refuses any other, which the file would lack.
Bool = Float = Float32 = Int64 = UInt64 = Shaped

HIDDEN = "not an option"


@dataclass(frozen=True)
class Flag:
    """Name the command-line option of a field; there is no command line here, but options are given by these names."""

    name: str


def flag(name: str) -> Any:
    """Return the annotation that gives a field's option this name."""
    return Flag(name)


@dataclass(frozen=True)
class Progress:
    """Show how far a training is by transformers' own bar."""

    _bar: Any

    def advance(self, steps: int = 1, note: str = "") -> None:
        """Move on, and show a short remark such as the loss."""
        self._bar.set_postfix_str(note, refresh=False)
        self._bar.update(steps)


@contextmanager
def progress_bar(description: str, total: int | None, completed: int = 0, quiet: bool = False) -> Iterator[Progress]:
    """Show a bar until the block ends; transformers' settings can silence it, too."""
    # disable=None leaves the choice to tqdm, which shows no bar where nobody looks at a terminal.
    with tqdm(desc=description, total=total, initial=completed, disable=quiet or None) as bar:
        yield Progress(bar)


def processor_source() -> str:
    """Return the stand-alone file, which is its own source."""
    return Path(__file__).read_text("utf-8")
