"""The demonstrations inside robomimic's, LIBERO's and RoboCasa's HDF5 files, `data/demo_<i>`, one by one.

Layout: https://robomimic.github.io/docs/datasets/overview.html.
"""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float64

from oat.data.columns import UINT8, file_identity
from oat.errors import CorruptDataset, InvalidEpisode, MissingKey, OatError
from oat.io.extras import import_extra

HDF5_SUFFIXES = {".hdf5", ".h5"}

ROBOMIMIC_TASKS = {"Lift": "lift", "PickPlaceCan": "can", "NutAssemblySquare": "square"}
"""The names that robomimic gives to tasks which its files call by robosuite's names."""
ROBOCASA_TASKS = {
    "CloseDrawer": "Close the drawer.",
    "StartCoffeeMachine": "Press the button on the coffee machine to serve coffee.",
    "CoffeePressButton": "Press the button on the coffee machine to serve coffee.",
    "TurnOffMicrowave": "Press the stop button on the microwave.",
    "TurnOffSinkFaucet": "Turn off the sink faucet.",
}
"""The instructions of RoboCasa's tasks by its environments' names; the coffee machine's was another once."""
_ROBOCASA_OPTIONS = ("layout_ids", "style_ids", "layout_and_style_ids")


@dataclass(frozen=True)
class Demo:
    """Describe one demonstration inside a file by its arrays' shapes, which are read without their contents."""

    file: Path
    name: str
    shapes: Mapping[str, tuple[int, ...]]  # "actions" and "obs/<key>"
    images: frozenset[str]  # the keys that hold colour images

    def __str__(self) -> str:
        return f"{self.file}:data/{self.name}"

    def read(self, key: str, rows: Any = ...) -> np.ndarray:
        """Return an array, or the given rows of it."""
        with explain_read_errors(self.file):
            return np.asarray(open_file(self.file)[f"data/{self.name}/{key}"][rows])

    def read_states(self) -> Float64[np.ndarray, "frames state"]:
        """Return the simulator's state before every action, from which it can render images again."""
        with explain_read_errors(self.file):
            frames = self.shapes["actions"][0]
            states = open_file(self.file)[f"data/{self.name}"].get("states")
            if getattr(states, "ndim", 0) != 2 or states.shape[0] != frames:
                found = getattr(states, "shape", "none")
                raise InvalidEpisode(f"{self}: {frames} actions need as many simulator states, found {found}")
            return np.asarray(states, np.float64)

    def attribute(self, name: str) -> Any:
        """Return what the file says about this demonstration under a name, or None."""
        with explain_read_errors(self.file):
            return open_file(self.file)[f"data/{self.name}"].attrs.get(name)


def list_files(path: Path) -> list[Path]:
    """Return the file itself, or every HDF5 file of a directory."""
    return sorted(f for f in path.iterdir() if f.suffix.lower() in HDF5_SUFFIXES) if path.is_dir() else [path]


def list_demos(file: Path) -> list[Demo]:
    """Return a file's demonstrations in the order of their numbers, demo_2 before demo_10."""
    with explain_read_errors(file):
        handle = open_file(file)
        data = handle.get("data")
        if not hasattr(data, "items"):
            raise MissingKey(f"{file}: no group 'data'; it has {sorted(handle)}")
        groups = {name: group for name, group in data.items() if hasattr(group, "items")}
        names = sorted(groups, key=lambda name: ([int(n) for n in re.findall(r"\d+", name)], name))
        return [_describe(file, name, groups[name]) for name in names]


def read_attributes(file: Path) -> dict[str, Any]:
    """Return what a file says about all its demonstrations, such as `env_args`."""
    with explain_read_errors(file):
        return {key: _parse(value) for key, value in open_file(file)["data"].attrs.items()}


def is_robocasa(attributes: Mapping[str, Any]) -> bool:
    """Return whether a file is RoboCasa's, whose environments are robomimic's but for their options."""
    env = attributes.get("env_args")
    if not isinstance(env, dict):
        return False
    options = env.get("env_kwargs")
    return env.get("env_name") in ROBOCASA_TASKS or (
        isinstance(options, dict) and any(option in options for option in _ROBOCASA_OPTIONS)
    )


def task_name(file: Path, attributes: Mapping[str, Any]) -> str:
    """Return LIBERO's or RoboCasa's instruction, else robomimic's task, the environment's name or the file's."""
    problem = attributes.get("problem_info")
    env = attributes.get("env_args")
    instruction = problem.get("language_instruction") if isinstance(problem, dict) else None
    if isinstance(instruction, list):  # early LIBERO files store a list of words
        instruction = " ".join(map(str, instruction))
    name = str(env.get("env_name") or "") if isinstance(env, dict) else ""
    known = ROBOMIMIC_TASKS | ROBOCASA_TASKS
    return str(instruction or known.get(name, name) or file.stem).strip('"')


@contextmanager
def explain_read_errors(file: Path) -> Iterator[None]:
    """Raise `CorruptDataset` for whatever h5py raises while it reads a damaged file."""
    try:
        yield
    except OatError:
        raise
    except Exception as error:  # h5py raises OSError, RuntimeError, KeyError, TypeError, … for damaged files
        raise CorruptDataset(f"{file}: not a readable HDF5 file ({type(error).__name__}: {error})") from error


def open_file(file: Path) -> Any:
    """Return a handle that stays open between reads, one per process: HDF5 handles must not cross a fork."""
    return _open_file(file, file_identity(file), os.getpid())


@lru_cache(maxsize=128)  # LIBERO-90 has 90 files
def _open_file(file: Path, identity: tuple[int, int, int], process: int) -> Any:
    h5py = import_extra("h5py", "formats")
    opened = h5py.File(file, "r")
    _refuse_outside(h5py, file, opened)
    return opened


def _refuse_outside(h5py: Any, file: Path, group: Any) -> None:
    """Raise `CorruptDataset` for links, arrays and virtual arrays whose contents lie in other files."""
    for name in group:
        place = f"{group.name.rstrip('/')}/{name}"
        if isinstance(group.get(name, getlink=True), h5py.ExternalLink):
            raise CorruptDataset(f"{file}: {place} is a link to another file, which is not followed")
        if group.get(name, getclass=True) is h5py.Group:
            if isinstance(group.get(name, getlink=True), h5py.HardLink):  # soft links may lead in circles
                _refuse_outside(h5py, file, group[name])
        elif group.get(name, getclass=True) is h5py.Dataset and (group[name].external or group[name].is_virtual):
            raise CorruptDataset(f"{file}: the contents of {place} are in another file, which is not read")


def _describe(file: Path, name: str, group: Any) -> Demo:
    """Return a demonstration with its numeric arrays; strings, scalars and nested groups are not read."""
    if not hasattr(group.get("actions"), "shape"):
        raise MissingKey(f"{file}: data/{name} has no 'actions'; it has {sorted(group)}")
    obs = group.get("obs")
    arrays = {f"obs/{key}": array for key, array in obs.items()} if hasattr(obs, "items") else {}
    arrays = {key: a for key, a in arrays.items() if getattr(a, "ndim", 0) > 0 and a.dtype.kind in "fiub"}
    shapes = {"actions": group["actions"].shape} | {key: array.shape for key, array in arrays.items()}
    images = {key for key, a in arrays.items() if a.ndim == 4 and a.shape[-1] == 3 and a.dtype == UINT8}
    return Demo(file, name, shapes, frozenset(images))


def _parse(attribute: Any) -> Any:
    """Return an attribute's value, which is JSON or plain text."""
    try:
        return json.loads(attribute)
    except (TypeError, ValueError):
        return attribute
