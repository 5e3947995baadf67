"""Building what a checkpoint's configuration describes, but nothing that is larger than its weights allow."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from oat.errors import CheckpointError, MissingExtra

Built = TypeVar("Built")

_CALLS = 2000  # more than building anything takes that does not come in layers
_CALLS_PER_TENSOR = 50  # creating a parameter, its layout and its random numbers, and a first pass through it
_NUMBERS = 1 << 26  # what a model may compute beside its weights, such as tables of sines
_NUMBERS_PER_NUMBER = 4  # a vision backbone may be built together with the text part that it leaves behind

_SIZED = {torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand, torch.eye}
_RANGES = {torch.arange, torch.linspace, torch.logspace}


def build_bounded(folder: Path, build: Callable[[], Built], tensors: Mapping[str, Tensor]) -> Built:
    """Return what `build` makes of a checkpoint's configuration; raise `CheckpointError` if that is absurdly large.

    Numbers in a file are cheap to write: a billion layers, or a vector of a billion numbers, is refused when the
    building begins, by comparison with the weights that are there.
    """
    numbers = sum(tensor.numel() for tensor in tensors.values())
    bounds = _Bounded(_CALLS + _CALLS_PER_TENSOR * len(tensors), _NUMBERS + _NUMBERS_PER_NUMBER * numbers)
    try:
        with bounds:
            return build()
    except (CheckpointError, MissingExtra):
        raise
    except Exception as error:  # what constructors, also other libraries', do with numbers that they never expected
        raise _misfit(folder, str(error).split("\n")[0]) from error


def check_shapes(folder: Path, expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Raise `CheckpointError` unless a checkpoint's tensors have the names and shapes of what was built."""
    for name in sorted(expected.keys() | tensors.keys()):
        asked = _shape_of(expected.get(name))
        found = _shape_of(tensors.get(name))
        if asked != found:
            raise _misfit(folder, f"{name} should be {asked}, it is {found}")


def _misfit(folder: Path, reason: str) -> CheckpointError:
    return CheckpointError(f"{folder}: its weights do not fit its configuration ({reason})")


def _shape_of(tensor: Tensor | None) -> str:
    return "absent" if tensor is None else " × ".join(map(str, tensor.shape)) or "a single number"


class _Bounded(TorchFunctionMode):
    """Let this thread call PyTorch only so often, and only for so many numbers."""

    def __init__(self, calls: int, numbers: int) -> None:
        super().__init__()
        self._calls = calls
        self._numbers = numbers

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self._calls -= 1
        size = _size(func, args, kwargs or {})
        if func in _SIZED:
            self._numbers -= size
        if self._calls < 0 or self._numbers < 0 or size > self._numbers:
            raise ValueError("it describes a much larger model than they are")
        return func(*args, **(kwargs or {}))


def _size(func: Any, args: Any, kwargs: Mapping[str, Any]) -> int:
    """Return how many numbers a call will make, as far as that can be told before."""
    if func in _RANGES:
        return max((math.ceil(abs(each)) for each in args if isinstance(each, int | float)), default=0)
    if func is torch.full:
        args = args[:1]
    if func in _SIZED or func is torch.full:
        given = args or (kwargs.get("size", ()),)
        sizes = given[0] if isinstance(given[0], tuple | list) else given
        return math.prod(int(side) for side in sizes) ** (2 if func is torch.eye and len(sizes) == 1 else 1)
    shapes = [tuple(each.shape) for each in args if isinstance(each, Tensor)]
    length = max(map(len, shapes), default=0)
    aligned = [(1,) * (length - len(shape)) + shape for shape in shapes]
    return math.prod(max(sides) for sides in zip(*aligned, strict=True))  # of elementwise functions
