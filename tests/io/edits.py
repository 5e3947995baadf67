"""Checkpoints of strangers for tests: ours with other numbers in config.json, whose digest is gone or right."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oat.io.checkpoints import CONFIG_FILE, write_config


def edit_config(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what config.json holds, and make it look as if it had been written so."""
    config = json.loads((folder / CONFIG_FILE).read_text())
    change(config)
    write_config(folder, {name: value for name, value in config.items() if name != "config_sha256"})


def set_value(folder: Path, place: str, value: Any) -> None:
    """Set one value of config.json by its place, such as config.width.dim or context.vector_dims.0."""

    def change(config: Any) -> None:
        *path, last = place.split(".")
        for name in path:
            config = config[int(name) if isinstance(config, list) else name]
        config[int(last) if isinstance(config, list) else last] = value

    edit_config(folder, change)
