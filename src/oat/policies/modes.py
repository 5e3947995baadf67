"""The mode of a network while it predicts, which several threads may do at once."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from weakref import WeakKeyDictionary

from torch import nn

_lock = Lock()
_waiting_to_train: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()
"""How many threads predict by a network that was in training mode when the first of them began."""


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Keep a network in evaluation mode; if it was training, the last thread that leaves puts it back."""
    with _lock:
        interrupts = module in _waiting_to_train or module.training
        if interrupts:
            _waiting_to_train[module] = _waiting_to_train.get(module, 0) + 1
            module.eval()
    try:
        yield
    finally:
        if interrupts:
            with _lock:
                _waiting_to_train[module] -= 1
                if not _waiting_to_train[module]:
                    del _waiting_to_train[module]
                    module.train()
