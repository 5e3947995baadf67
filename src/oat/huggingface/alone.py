"""What the stand-alone file has instead of what is left behind: jaxtyping's types, and the source it is made from."""

from pathlib import Path
from typing import Any


class Shaped:
    """An array's type without its shape, which is there for readers."""

    def __class_getitem__(cls, array_and_shape: tuple[Any, str]) -> Any:
        return array_and_shape[0]


Bool = Float = Int64 = Shaped


def processor_source() -> str:
    """The stand-alone file is its own source."""
    return Path(__file__).read_text("utf-8")
