"""Logs of a training run: JSON lines for programs, TensorBoard for people, Weights & Biases when asked."""

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oat.io.checkpoints import LOG_FILE
from oat.io.extras import import_extra
from oat.io.write_errors import explain_write_errors


class MetricLog:
    """Write `metrics.jsonl` and TensorBoard events in a run's directory; a resumed run drops what it will do again."""

    def __init__(self, folder: Path, first_step: int, wandb_project: str | None = None) -> None:
        from torch.utils.tensorboard import SummaryWriter  # only runs in a directory need it

        self._folder = folder
        with explain_write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / LOG_FILE
            lines = path.read_text().splitlines() if path.exists() else []
            # A run is resumed at its last checkpoint; the steps that it had taken since will be taken, and told, again.
            kept = [line for line in lines if _step_of(line) <= first_step]
            path.write_text("".join(f"{line}\n" for line in kept))
            self._file = path.open("a", buffering=1)  # line by line: what was logged survives a kill
            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step + 1 if first_step else None)
        self._wandb = None if wandb_project is None else _start_wandb(folder, wandb_project)

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Append the values of a step to every log."""
        with explain_write_errors(self._folder):
            self._file.write(json.dumps({"step": step, **values}) + "\n")
            for name, value in values.items():
                self._board.add_scalar(name, value, step)
        if self._wandb is not None:
            self._wandb.log(dict(values), step=step)

    def close(self) -> None:
        """Finish all logs; what was written is on disk already."""
        if self._wandb is not None:
            self._wandb.finish()
        with explain_write_errors(self._folder):
            self._file.close()
            self._board.close()


def _start_wandb(folder: Path, project: str) -> Any:
    """Return a run named after the folder; a resumed one goes on under the same id, which the folder remembers."""
    wandb = import_extra("wandb", "wandb")
    name = folder / "wandb_id.txt"
    if not name.exists():
        name.write_text(secrets.token_hex(4))
    return wandb.init(project=project, name=folder.name, dir=str(folder), id=name.read_text(), resume="allow")


def _step_of(line: str) -> float:
    """Return the step of a line; one that a kill cut short counts as never written."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return float("inf")
