"""Point RoboCasa at its models and textures, which are not part of its package, and let it write nowhere near them.

`OAT_ROBOCASA_ASSETS` names a folder with the whole download, or a small set with stand-ins. RoboCasa writes a file
beside every object that it loads, so it works on a copy of the folders whose files are links. `python -m
oat.sims.robocasa_assets` downloads the whole set into RoboCasa's package.
"""

import hashlib
import importlib.util
import io
import os
import re
import runpy
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from oat.errors import MissingExtra, SimulatorError, UnknownName
from oat.io.extras import DISTRIBUTION, import_extra
from oat.sims.assets import STAND_IN, explain_missing_files, has_stand_ins
from oat.sims.quick_building import compile_robots_once, read_yaml_in_c
from oat.sims.robosuite import import_robosuite

ASSETS_VARIABLE = "OAT_ROBOCASA_ASSETS"
INSTALL_COMMAND = (
    f"pip install '{DISTRIBUTION}[robocasa]' && pip install --no-deps praxis-robosuite==1.5.2.post1 "
    "praxis-robocasa==1.0.0"
)
DOWNLOAD_COMMAND = "python -m oat.sims.robocasa_assets"
_PARTS = ("arenas", "fixtures", "objects", "scenes", "textures")
_WANTED = {"numpy": "2.2.5", "mujoco": "3.3.1"}  # what RoboCasa insists on; others work
_REGISTRIES = {"aigen": "aigen_objs"}  # object collections whose folder has another name


def describe_numbers(numbers: Sequence[int]) -> str:
    """Return increasing numbers as text such as 1-10, 12."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs) or "none"


@contextmanager
def explain_missing() -> Iterator[None]:
    """Name the command that fetches assets where RoboCasa does not find a file or an entry in a list."""
    try:
        with explain_missing_files("RoboCasa", DOWNLOAD_COMMAND, _within_assets):
            yield
    except KeyError as error:
        raise SimulatorError(f"RoboCasa's assets lack {error}: fetch them with `{DOWNLOAD_COMMAND}`") from error


@dataclass(frozen=True)
class Assets:
    """Hold where RoboCasa's models and textures are."""

    folder: Path

    @property
    def name(self) -> str:
        """Return what records and tables call these assets."""
        return f"{STAND_IN} kitchen" if has_stand_ins(self.folder) else "full kitchens"

    @cached_property
    def digest(self) -> str:
        """Return a fingerprint of all files, by which initial conditions of other assets are kept apart."""
        digest = hashlib.blake2b(digest_size=8)
        for part in _PARTS:
            for file in sorted((self.folder / part).rglob("*")):
                if file.is_file():
                    digest.update(f"{file.relative_to(self.folder)} {file.stat().st_size}\n".encode())
        return digest.hexdigest()

    def numbers(self, kind: str) -> list[int]:
        """Return the numbers of the layouts or styles that are described here."""
        files = (self.folder / "scenes" / f"kitchen_{kind}s").glob(f"*/{kind}*.yaml")
        return sorted(int(number.group()) for file in files if (number := re.search(r"\d+", file.stem)))

    def scenes(self, layouts: Sequence[int] = (), styles: Sequence[int] = ()) -> list[tuple[int, int]]:
        """Return pairs of layout and style, by default of all that are here; an unknown one is an error."""
        chosen = {}
        for kind, wanted in (("layout", layouts), ("style", styles)):
            there = self.numbers(kind)
            for number in wanted:
                if number not in there:
                    raise UnknownName(
                        f"unknown kitchen {kind} {number}. {self.folder} has {describe_numbers(there)}: take one of "
                        f"these, or fetch all with `{DOWNLOAD_COMMAND}`"
                    )
            chosen[kind] = list(wanted) or there
        return [(layout, style) for layout in chosen["layout"] for style in chosen["style"]]


def find_assets() -> Assets:
    """Return the assets that are named, else those in RoboCasa's package; missing ones name the command to get them."""
    named = os.environ.get(ASSETS_VARIABLE)
    package = importlib.util.find_spec("robocasa")
    usual = Path(str(package.origin)).parent / "models/assets" if package else Path("robocasa/models/assets")
    folder = Path(named).expanduser().resolve() if named else usual
    missing = [part for part in _PARTS if not (folder / part).is_dir()]
    if not missing and not any((folder / "objects").glob("*/*/*/model.xml")):
        missing = ["objects/…/model.xml"]
    if missing:
        raise SimulatorError(
            f"RoboCasa's models and textures are not at {folder} (no {', '.join(missing)}): fetch them with "
            f"`{DOWNLOAD_COMMAND}` (10 GB), or let {ASSETS_VARIABLE} name the folder that has them"
        )
    return Assets(folder)


@contextmanager
def _claiming_versions() -> Iterator[None]:
    """Let numpy and mujoco claim the versions that RoboCasa insists on while it is imported."""
    # These look at numpy's version themselves, and must see the true one.
    for name in ("numba.np.numpy_support", "scipy", "cv2", "gymnasium", "h5py"):
        import_extra(name, "robocasa")
    modules = {name: import_extra(name, "robocasa") for name in _WANTED}
    true = {name: module.__version__ for name, module in modules.items()}
    for name, module in modules.items():
        vars(module)["__version__"] = _WANTED[name]
    try:
        yield
    finally:
        for name, module in modules.items():
            vars(module)["__version__"] = true[name]


@cache
def import_robocasa() -> ModuleType:
    """Import RoboCasa's package beside newer versions of numpy and mujoco than it asks for."""
    import_robosuite()
    if importlib.util.find_spec("robocasa") is None:
        raise MissingExtra(f"RoboCasa is not installed: {INSTALL_COMMAND}")
    sys.modules["robocasa.macros_private"] = ModuleType("robocasa.macros_private")  # else it warns that none exists
    # It says what other packages are missing, which nobody asked.
    with _claiming_versions(), redirect_stdout(io.StringIO()):
        robocasa = import_extra("robocasa", "robocasa")
    compile_robots_once()
    scenes = ("robocasa.models.scenes.kitchen_arena", "robocasa.models.scenes.scene_utils")
    read_yaml_in_c([import_extra(name, "robocasa") for name in scenes])
    return robocasa


@cache
def use_assets(assets: Assets) -> None:
    """Make RoboCasa read these assets, through links, and only objects that are there."""
    models = import_extra("robocasa.models", "robocasa")
    folder = _link_tree(assets.folder)
    vars(models)["assets_root"] = str(folder)
    objects = import_extra("robocasa.models.objects.kitchen_objects", "robocasa")
    sampling = import_extra("robocasa.models.objects.kitchen_object_utils", "robocasa")
    for module in (objects, sampling):
        vars(module)["BASE_ASSET_ZOO_PATH"] = str(folder / "objects")
    there = _list_objects(sampling.OBJ_CATEGORIES, folder / "objects")
    for group, categories in objects.OBJ_GROUPS.items():
        objects.OBJ_GROUPS[group] = [category for category in categories if category in there]


_WORKING_COPIES: list[tempfile.TemporaryDirectory[str]] = []
"""The copies of this process, which vanish with it."""


def _within_assets(file: str) -> str:
    """Return where a file of a working copy is among the assets that the user knows."""
    for copy in _WORKING_COPIES:
        file = file.removeprefix(f"{copy.name}/")
    return file


def _link_tree(source: Path) -> Path:
    """Return a new folder with the same folders, and links to the same files."""
    copy = tempfile.TemporaryDirectory(prefix="oat-robocasa-", ignore_cleanup_errors=True)
    _WORKING_COPIES.append(copy)
    for part in _PARTS:
        for directory, _, files in os.walk(source / part):
            target = Path(copy.name) / Path(directory).relative_to(source)
            target.mkdir(parents=True, exist_ok=True)
            for file in files:
                (target / file).symlink_to(Path(directory) / file)
    return Path(copy.name)


def _list_objects(categories: Any, folder: Path) -> set[str]:
    """List the models of every category anew, which RoboCasa does once, and return the categories that have any."""
    there = set()
    for category, registries in categories.items():
        for registry, entry in registries.items():
            models = (folder / _REGISTRIES.get(registry, registry) / category).glob("*/model.xml")
            entry.mjcf_paths = sorted(str(model) for model in models)
            if entry.mjcf_paths and registry in ("objaverse", "lightwheel"):
                there.add(category)
    return there


if __name__ == "__main__":
    import_robocasa()
    runpy.run_module("robocasa.scripts.download_kitchen_assets", run_name="__main__")
