"""Keep the initial conditions of RoboCasa's tasks: what stands in a kitchen, and the simulator's state.

A seed alone does not always give RoboCasa the same start, so that a condition is drawn once and then read from a file
under `$OAT_CACHE_DIR/robocasa` (by default `~/.cache/oat/robocasa`), where those of other assets are kept apart. A
study keeps those that it uses in its own folder (`$OAT_STARTS_DIR`), which come first. Records hold a start's
fingerprint, so that no other is taken for it.
"""

import hashlib
import json
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from oat.errors import SimulatorError
from oat.io.atomic import staged_file
from oat.io.write_errors import explain_write_errors
from oat.sims import STARTS_VARIABLE


@dataclass(frozen=True)
class Start:
    """Hold how an episode begins."""

    kitchen: dict[str, Any]
    """What RoboCasa rebuilds the scene from: layout, style, objects, where the robot stands."""
    scene: str
    """The fingerprint of the compiled scene, by which a scene that was rebuilt otherwise is noticed."""
    state: Float64[np.ndarray, " state"]

    @property
    def fingerprint(self) -> str:
        """Return text that differs between starts that are not equal bit for bit."""
        described = json.dumps([self.kitchen, self.scene], sort_keys=True).encode()
        return hashlib.blake2b(described + self.state.tobytes(), digest_size=8).hexdigest()


def fingerprint(model: Any) -> str:
    """Return text that differs between scenes in which anything stands elsewhere or has another size."""
    digest = hashlib.blake2b(digest_size=16)
    for values in (model.body_pos, model.body_quat, model.geom_pos, model.geom_size, model.body_mass, model.qpos0):
        digest.update(np.ascontiguousarray(values).tobytes())
    return digest.hexdigest()


def _read(path: Path) -> Start:
    """Return the start that a file holds."""
    try:
        with np.load(path) as stored:
            kitchen = json.loads(str(stored["kitchen"]))
            return Start(kitchen, str(stored["scene"]), np.asarray(stored["state"], np.float64))
    except (OSError, ValueError, KeyError) as error:
        raise SimulatorError(f"{path} does not hold an initial condition ({error}): remove it") from error


class Starts:
    """Keep the starts of one task in a folder, a file for each."""

    def __init__(self, assets: str, task: str) -> None:
        cache = Path(os.environ.get("OAT_CACHE_DIR") or Path.home() / ".cache" / "oat")
        part = Path("robocasa") / assets / task
        self._folder = cache / part
        named = os.environ.get(STARTS_VARIABLE)
        self._study = Path(named) / part if named else self._folder

    def path(self, condition: int) -> Path:
        """Return the file of a condition, the study's if it has one; whether or not it exists."""
        name = f"{condition}.npz"
        return self._study / name if (self._study / name).exists() else self._folder / name

    def find(self, condition: int) -> Start | None:
        """Return the start that is kept for a condition, if there is one."""
        path = self.path(condition)
        if not path.exists():
            return None
        start = _read(path)
        if path.parent != self._study:
            with staged_file(self._study / path.name) as staging:
                shutil.copyfile(path, staging)
        return start

    def keep(self, condition: int, start: Start) -> Start:
        """Keep a start, unless another process was faster, whose start counts for all; return the one that does."""
        path = self._folder / f"{condition}.npz"
        with explain_write_errors(path):
            self._folder.mkdir(parents=True, exist_ok=True)
            staging = path.with_name(f".{condition}.{secrets.token_hex(8)}.npz")
            try:
                text = json.dumps(start.kitchen)
                np.savez_compressed(staging, kitchen=np.array(text), scene=np.array(start.scene), state=start.state)
                os.link(staging, path)  # unlike a rename, this does not replace a file
            except FileExistsError:
                pass
            finally:
                staging.unlink(missing_ok=True)
        kept = self.find(condition)
        assert kept is not None
        return kept
