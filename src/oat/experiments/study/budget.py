"""Step budgets: every method has the same minutes, and how many steps it can take in them is measured once.

The steps are then fixed and kept, so that a training that is interrupted goes on exactly as planned.
"""

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from oat.experiments.study.methods import Method, RunKind
from oat.experiments.study.runs import Run, perform
from oat.io.atomic import staged_file
from oat.io.checkpoints import LOG_FILE
from oat.training.config import FitConfig, TrainPolicyConfig

if TYPE_CHECKING:
    from oat.experiments.study.study import Study

STEP_SECONDS_FILE = "pace.json"  # published studies hold a file of this name
_TIMED_STEPS = 40  # two of the log's intervals: the first is the warm-up
_ROUND_TO = 50  # timings are not exact enough for more digits, and round numbers are easier to repeat


@dataclass
class StepBudget:
    """Tell how many steps a method can take in its minutes, from the seconds that one takes on one thread."""

    study: "Study"

    @property
    def _file(self) -> Path:
        return self.study.folder / STEP_SECONDS_FILE

    @property
    def _seconds(self) -> dict[str, float]:
        if not self._file.exists():
            return {}
        measured: dict[str, float] = json.loads(self._file.read_text("utf-8"))
        return measured

    def tokenizer_steps(self, method: Method) -> int | None:
        """Return the steps of the method's tokenizer; None leaves the preset's."""
        minutes = self._minutes(method)
        taken = None if minutes is None else self.study.scale.tokenizer_share * minutes
        return self._steps(_key("tokenizers", method), taken)

    def policy_steps(self, method: Method) -> int | None:
        """Return the steps of the method's policy, in what its tokenizer leaves; None leaves the preset's."""
        minutes = self._minutes(method)
        if minutes is not None and method.learned_tokenizer:
            minutes -= self.study.scale.tokenizer_share * minutes
        return self._steps(_key("policies", method), minutes)

    def _minutes(self, method: Method) -> float | None:
        return self.study.minutes if method.minutes is None else method.minutes

    def _steps(self, name: str, minutes: float | None) -> int | None:
        seconds = self._seconds.get(name)
        if minutes is None or seconds is None:
            return self.study.scale.steps
        return max(_ROUND_TO, round(60 * minutes / seconds / _ROUND_TO) * _ROUND_TO)

    def lacks(self, method: Method) -> bool:
        """Return whether the method's steps are yet to be timed."""
        return self._minutes(method) is not None and not self._seconds.keys() >= set(_keys(method))

    def untimed(self, methods: Iterable[Method]) -> list[Method]:
        """Return the methods whose steps are yet to be timed, the first of those that go at the same pace."""
        found: dict[tuple[str, ...], Method] = {}
        for method in methods:
            if self.lacks(method):
                found.setdefault(_keys(method), method)
        return list(found.values())

    def measure(self, methods: Iterable[Method]) -> None:
        """Train each method for a moment, one after the other, keep what a step takes, and throw the models away."""
        for method in self.untimed(methods):
            with tempfile.TemporaryDirectory() as scratch:
                trial = replace(self.study, folder=Path(scratch), given_data=self.study.data.resolve())
                measured = {}
                # Also a tokenizer that is not trained: the policy's training reads it.
                if method.tokenizer is not None:
                    seconds = _time(trial.tokenizer(method, 0, _TIMED_STEPS))
                    measured = {_key("tokenizers", method): seconds} if method.learned_tokenizer else {}
                measured[_key("policies", method)] = _time(trial.policy(method, 0, _TIMED_STEPS))
            with staged_file(self._file) as staging:
                # What is known stays: a shared tokenizer was trained for the steps that followed from it.
                staging.write_text(json.dumps({**measured, **self._seconds}, indent=1))


def _keys(method: Method) -> tuple[str, ...]:
    """Return the names of the paces that a method's steps follow from."""
    kinds: tuple[RunKind, ...] = ("tokenizers", "policies") if method.learned_tokenizer else ("policies",)
    return tuple(_key(kind, method) for kind in kinds)


def _key(kind: RunKind, method: Method) -> str:
    return f"{kind}/{method.paced_as(kind)}"


def _time(run: Run) -> float:
    """Return the seconds per step, from the training's own log, after a warm-up; 0 where there is no training.

    They are the processor's, so that other load on the machine counts less.
    """
    config = run.config
    assert isinstance(config, FitConfig | TrainPolicyConfig)
    if config.recipe is not None:
        # Validation and checkpoints are left out of what a step takes: they come at the end only.
        config = replace(config, recipe=replace(config.recipe, validate_every=config.recipe.steps))
    perform(config)
    log = config.out / LOG_FILE
    lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    timed = [(line["step"], line["processor_seconds"]) for line in lines if "processor_seconds" in line]
    if not timed:
        return 0.0
    first, begin = timed[0]
    last, end = timed[-1]
    return float((end - begin) / (last - first))
