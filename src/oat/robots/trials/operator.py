"""Ask a person at a keyboard to set the scene, end the trial and judge it, in lines of text that also work over ssh."""

import os
import select
import sys

from rich.console import Console
from rich.markup import escape

from oat.robots.trials.log import Verdict
from oat.robots.trials.plan import Trial, TrialPlan
from oat.robots.trials.session import Judgement

_VERDICTS: dict[str, Verdict] = {"s": "success", "f": "failure", "v": "void"}
_QUIT = "q"
_BACK = "<"


class Keyboard:
    """Read lines of standard input, and tell whether one is there without waiting for it."""

    def __init__(self, descriptor: int | None = None) -> None:
        self._descriptor = sys.stdin.fileno() if descriptor is None else descriptor
        self._typed = b""

    def line(self) -> str:
        """Return the next line without its end; the end of the input counts as Ctrl-C."""
        while b"\n" not in self._typed:
            self._typed += self._read()
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace").strip()

    def _read(self) -> bytes:
        try:
            more = os.read(self._descriptor, 4096)
        except OSError:  # the terminal was closed
            more = b""
        if not more:
            raise KeyboardInterrupt
        return more

    def has_line(self) -> bool:
        """Return whether a line was typed, without waiting."""
        ready, _, _ = select.select([self._descriptor], [], [], 0)
        return bool(ready) or b"\n" in self._typed

    def forget(self) -> None:
        """Discard what was typed before anybody asked for it."""
        self._typed = b""
        while self.has_line():
            self.line()


class Operator:
    """Ask the person who sees the robot to judge the trials."""

    name = "operator"

    def __init__(self, plan: TrialPlan, keyboard: Keyboard | None = None, console: Console | None = None) -> None:
        self._plan = plan
        self._places = {trial: place for place, trial in enumerate(plan.order(), start=1)}
        self._keyboard = keyboard or Keyboard()
        self._console = console or Console(highlight=False)

    def prepare(self, trial: Trial) -> bool:
        """Tell which trial comes next and how to set the scene, and wait for Enter; return False after q."""
        self._console.rule(f"trial {self._places[trial]} of {len(self._places)}")
        self._say(f"task    [bold]{escape(trial.task)}[/]")
        self._say(f"block   {trial.block + 1} of {self._plan.trials}, policy [bold]{trial.letter}[/]")
        if trial.opens_block:
            self._say("scene   place the objects anew, and mark where they are: this block's trials all begin there")
        else:
            self._say("scene   put the objects back where they were for A of this block")
        self._ask(f"Enter starts the robot, {_QUIT} stops here: ")
        if self._keyboard.line().lower() == _QUIT:
            return False
        self._keyboard.forget()  # a second Enter must not end the trial at once
        self._say(f"running, for at most {self._plan.driving.seconds:g} s; Enter stops the robot")
        return True

    def finished(self) -> bool:
        """Return whether the operator has pressed Enter to stop the robot."""
        return self._keyboard.has_line()

    def verdict(self, trial: Trial) -> Judgement:
        """Ask for a verdict and a remark until the operator is content with both."""
        self._keyboard.forget()
        self._say("the robot has stopped")
        while True:
            self._ask("s success, f failure, v void (it is repeated): ")
            verdict = _VERDICTS.get(self._keyboard.line().lower())
            if verdict is None:
                continue
            self._ask(f"{verdict}; a remark, or just Enter ({_BACK} to judge again): ")
            remark = self._keyboard.line()
            if remark != _BACK:
                return Judgement(verdict, remark)

    def _say(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def _ask(self, text: str) -> None:
        self._console.print(text, end="", soft_wrap=True)
