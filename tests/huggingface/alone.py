"""A Python that has torch, numpy, safetensors and transformers with what these require, and nothing else: no `oat`."""

import os
import re
import subprocess
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

ALLOWED = ("torch", "numpy", "safetensors", "transformers")


def required(names: tuple[str, ...]) -> dict[str, Distribution]:
    """The installed distributions of these names, and those they require."""
    found: dict[str, Distribution] = {}
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # an option that is not installed here either
            continue
        wanted = [Requirement(text) for text in found[name].requires or []]
        waiting += [each.name for each in wanted if each.marker is None or each.marker.evaluate({"extra": ""})]
    return found


def link_packages(folder: Path) -> Path:
    """A directory for sys.path with links to exactly these packages."""
    folder.mkdir()
    for each in required(ALLOWED).values():
        for top in {file.parts[0] for file in each.files or []} - {"..", "__pycache__"}:
            link = folder / top
            if not link.exists() and not top.endswith(".pth"):
                link.symlink_to(Path(str(each.locate_file(top))))
    return folder


def run_alone(packages: Path, code: str, *arguments: str | Path, **environment: str) -> str:
    """Run code there; what it prints."""
    begin = f"import sys; sys.path.append({str(packages)!r})\n"
    command = [sys.executable, "-I", "-S", "-W", "error", "-c", begin + code, *map(str, arguments)]
    needed = {"OMP_NUM_THREADS": "1", "HF_HUB_DISABLE_TELEMETRY": "1", **environment}
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env={**os.environ, **needed})
    assert done.returncode == 0, done.stderr
    return done.stdout
