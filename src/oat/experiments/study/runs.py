"""An experiment's runs: each a verb of the command line with its configuration, skipped once it is done."""

import hashlib
import json
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import oat
from oat.errors import InvalidOption
from oat.evaluation.config import EvalConfig
from oat.experiments.study.starts import with_starts
from oat.io.atomic import staged_file
from oat.io.checkpoints import LOG_FILE, weights_hash
from oat.io.commands import command_line
from oat.sims.config import CollectConfig
from oat.training.config import CalibrateConfig, FitConfig, TrainPolicyConfig

Config = CollectConfig | FitConfig | TrainPolicyConfig | CalibrateConfig | EvalConfig

DONE_FOLDER = "done"

# Names instead of functions: a process that only schedules runs does not import what they need.
_VERBS: dict[type, tuple[str, str, str]] = {
    CollectConfig: ("collect", "oat.sims.collect", "collect_demonstrations"),
    FitConfig: ("fit", "oat.training.tokenizers", "fit_tokenizer"),
    TrainPolicyConfig: ("train", "oat.training.policies", "train_policy"),
    CalibrateConfig: ("calibrate", "oat.training.error_heads", "calibrate"),
    EvalConfig: ("eval", "oat.evaluation.evaluate", "evaluate_policy"),
}


def marker(folder: Path, name: str) -> Path:
    """Return the file that says that a run of the study in this folder is done."""
    return folder / DONE_FOLDER / f"{name.replace('/', '-')}.json"


def read_result(folder: Path, name: str) -> dict[str, Any]:
    """Return what was noted when a run was done; nothing before."""
    file = marker(folder, name)
    noted: dict[str, Any] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return noted


def commit() -> str:
    """Return the commit of the code that runs, or "unknown" where it is not a checkout or git is missing."""
    ask = ["git", "describe", "--always", "--dirty"]
    try:
        asked = subprocess.run(ask, cwd=Path(__file__).parent, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return asked.stdout.strip() or "unknown"


def processor() -> str:
    """Return the name of this machine's processor: weights of one training differ from kind to kind."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8", errors="replace").splitlines()
    except OSError:  # not Linux
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, "") or platform.processor() or platform.machine()


def perform(config: Config) -> None:
    """Do what the command line does with this configuration, in this process."""
    _, module, function = _VERBS[type(config)]
    action: Callable[[Any], None] = getattr(import_module(module), function)
    action(config)


@dataclass(frozen=True)
class Run:
    """Describe a step on the way to a table: a verb with its configuration, and what it needs."""

    folder: Path
    """The study's folder, in which the run has a directory of its own."""
    name: str
    """The run's directory in the study's folder, such as policies/oat-seed0."""
    config: Config
    needs: tuple[str, ...] = ()
    """The runs whose results it reads."""

    @property
    def command(self) -> str:
        """Return what gives the same on the command line, in the study's directory, wherever that is moved.

        Of demonstrations that lie elsewhere only the name is told, not where.
        """
        written = command_line(_VERBS[type(self.config)][0], self.config).replace(f"{self.folder}/", "")
        data = getattr(self.config, "data", None)
        return written if data is None else written.replace(f"{data.parent}/", "")

    @property
    def log(self) -> Path:
        """Return the file that everything goes to which the run prints."""
        return self.folder / "logs" / f"{self.name.replace('/', '-')}.log"

    @property
    def _marker(self) -> Path:
        return marker(self.folder, self.name)

    @property
    def _set_aside(self) -> Path:
        """Return where the marker waits while the result is made again; publishing copies no such file."""
        return self._marker.with_suffix(".again")

    @property
    def _result(self) -> dict[str, Any]:
        return read_result(self.folder, self.name)

    @property
    def done(self) -> bool:
        """Return whether its result is there.

        Raise InvalidOption for one that was made by another command, or from what was since replaced.
        """
        if not self._result:
            return False
        made_by = self._result["command"]
        if made_by != self.command:
            raise InvalidOption(
                f"{self.folder} holds {self.name} made by `{made_by}`, which is not `{self.command}`; "
                "another --out keeps it"
            )
        replaced = [need for need, was in self._result.get("from", {}).items() if was != self._fingerprint(need)]
        if replaced:
            raise InvalidOption(
                f"{self.folder} holds {self.name} made from {' and '.join(replaced)}, since replaced or removed; "
                f"remove {self.config.out} and {self._marker} to make it anew"
            )
        return True

    @property
    def lost(self) -> bool:
        """Return whether it is done, but its result is not here: models are not published with a study."""
        return self.done and not self.config.out.exists()

    def make_again(self) -> None:
        """Take the mark off a run whose result is lost; it is put back as it was once the result is here.

        Trainings are deterministic on one kind of processor, so that what was made from the first result stands if the
        weights come out as they were noted. Raise InvalidOption for a training whose weights nobody noted: what was
        made from it and what is yet to be made might be of two models.
        """
        if self.steps and "weights" not in self._result:
            raise InvalidOption(
                f"{self.name} would be trained again, and what weights it had was not noted, so that nobody can tell "
                f"whether it comes out the same. Another --out makes everything anew"
            )
        self._marker.rename(self._set_aside)

    @property
    def steps(self) -> int | None:
        """Return how many steps it was trained for, if it is done and was a training."""
        steps: int | None = self._result.get("steps")
        return steps

    def _fingerprint(self, need: str) -> str:
        """Return what identifies the one time that a needed run was done: its marker says how long that took."""
        kept = marker(self.folder, need)
        file = kept if kept.exists() else kept.with_suffix(".again")
        return hashlib.sha256(file.read_bytes()).hexdigest()[:12] if file.exists() else "not done"

    def perform(self) -> None:
        """Do the run, or what is left of it, and mark it as done."""
        begin = time.perf_counter()
        # A data set appears whole or not at all; trainings and evaluations continue where they were interrupted.
        if not (isinstance(self.config, CollectConfig) and self.config.out.exists()):
            with_starts(self.folder, perform, self.config)
        weights = weights_hash(self.config.out)
        if self._set_aside.exists():
            self._check_made_again(weights)
            self._set_aside.replace(self._marker)
            return
        described = {
            "command": self.command,
            **({"steps": steps} if (steps := last_step(self.config.out)) else {}),
            **({"weights": weights} if weights else {}),
            "seconds": round(time.perf_counter() - begin, 1),  # of the last part, where it was interrupted
            "oat": oat.__version__,
            "commit": commit(),
            **({"processor": processor()} if weights else {}),
            **({"from": {need: self._fingerprint(need) for need in self.needs}} if self.needs else {}),
        }
        with staged_file(self._marker) as staging:
            staging.write_text(json.dumps(described, indent=1, ensure_ascii=False), "utf-8")

    def _check_made_again(self, weights: str | None) -> None:
        """Raise InvalidOption if what was made again is something else than before, as far as that was noted."""
        noted = json.loads(self._set_aside.read_text("utf-8"))
        before = noted.get("weights", weights)
        if weights != before:
            former = noted.get("processor", "one that was not noted")
            raise InvalidOption(
                f"{self.name} made again has other weights ({weights}) than before ({before}): on another kind of "
                f"processor (this is {processor()}, that was {former}) or version of torch that happens. Another --out "
                f"makes everything anew"
            )


def last_step(run: Path) -> int | None:
    """Return how far a training is, from its log; None without one."""
    metrics = run / LOG_FILE
    if not metrics.exists():
        return None
    begin = max(0, metrics.stat().st_size - 4096)  # the end is enough, and a long log is looked at often
    with metrics.open("rb") as file:
        file.seek(begin)
        # The first line may be cut by the seek, and the last is not complete while it is being written.
        whole = [line for line in file.read().splitlines(keepends=True)[begin > 0 :] if line.endswith(b"\n")]
    return int(json.loads(whole[-1])["step"]) if whole else None
