"""Ctrl-C and SIGTERM: they stop a command once, are never lost, and do not disturb it on its way out."""

import os
import signal
import sys
import threading
from types import FrameType

_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_AGAIN_SECONDS = 0.02


class Interruption:
    """Let Ctrl-C or SIGTERM stop a command; sent again, they do not disturb the tidying up, which takes a moment."""

    def __init__(self) -> None:
        self.number = signal.SIGINT
        self._before = {number: signal.getsignal(number) for number in _INTERRUPTS}
        self._hook = sys.unraisablehook
        self._listen()

    @property
    def status(self) -> int:
        """Return the status that shells expect after the signal."""
        return 128 + self.number

    def ignore(self) -> None:
        """Ignore both from now on: Python's own way out takes a moment, and would print where it was interrupted."""
        for number in _INTERRUPTS:
            signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Let both do again what they did before the command, for a program that goes on after it."""
        sys.unraisablehook = self._hook
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _listen(self) -> None:
        sys.unraisablehook = self._hear_again
        for number in _INTERRUPTS:
            signal.signal(number, self._interrupt)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self.number = signal.Signals(number)
        self.ignore()
        raise KeyboardInterrupt

    def _hear_again(self, problem: "sys.UnraisableHookArgs") -> None:
        """Send an interruption again that struck in a destructor, out of which Python lets no exception."""
        if not issubclass(problem.exc_type, KeyboardInterrupt):
            self._hook(problem)
            return
        self._listen()
        threading.Timer(_AGAIN_SECONDS, os.kill, (os.getpid(), self.number)).start()
