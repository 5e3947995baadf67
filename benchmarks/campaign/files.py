"""Damaged and hostile data sets, checkpoints and token sets: refused by a typed error, or read as if whole."""

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.campaign.children import call
from benchmarks.campaign.mangling import edit_json, mangle_bytes, mangle_json
from benchmarks.campaign.trial import Broken, Place
from benchmarks.campaign.workshop import DIGESTED, item
from oat.data.episodes import open_dataset
from oat.encoding.config import DecodeConfig
from oat.encoding.run import decode_tokens
from oat.encoding.token_set import DESCRIPTION_FILE
from oat.errors import OatError
from oat.export.loading import load_predictor
from oat.io.checkpoints import CARD_FILE, CONFIG_FILE, write_config
from oat.tokenizers.loading import load_tokenizer
from tests.policies.small import observe
from tests.tokenizers.fitted import smooth_chunks

_SECONDS = 40.0
_MEMORY = 3 * 2**30
_NOTICES = {*DIGESTED, "npz", "npz-compressed"}
"""Formats with checksums of everything, in which no change of bytes may pass for the original."""
_EDITED_SHARE = 0.3


def mangle_data(name: str, generator: np.random.Generator, place: Place) -> int:
    """Damage one file of a data set, then open it and read everything."""
    source = item(place, f"set-{name}")
    copy = place.folder / "set"
    shutil.copytree(source, copy)
    (path,) = copy.iterdir()
    files = sorted(file for file in copy.rglob("*") if file.is_file())
    file = files[int(generator.integers(len(files)))]
    text = file.suffix == ".json" or file.name.startswith(".z")
    if text and generator.random() < 0.5:
        told = edit_json(file, generator)
    elif generator.random() < 0.05:
        file.unlink()
        told = f"without {file.name}"
    else:
        told = mangle_bytes(file, generator)
    expected = _expected(place, name, partial(_contents, source / path.name))
    found = _outcome(partial(_contents, path), told)
    if found is not None and found != expected and name in _NOTICES:
        raise Broken(f"{told}: read as if nothing had changed")
    return 1


def _contents(path: Path) -> str:
    """Return a digest of all that a data set holds."""
    os.environ["OAT_CACHE_DIR"] = str(path.parents[1] / "cache")
    episodes = open_dataset(path)
    digest = hashlib.sha256(repr((episodes.ends.tolist(), list(episodes.tasks), episodes.fps)).encode())
    frames = np.arange(len(episodes.actions))
    digest.update(np.ascontiguousarray(episodes.actions[frames]).tobytes())
    for key, column in sorted(episodes.observations.items()):
        digest.update(key.encode() + np.ascontiguousarray(column[frames]).tobytes())
    return digest.hexdigest()


def mangle_checkpoint(name: str, generator: np.random.Generator, place: Place) -> int:
    """Damage one file of a checkpoint, or edit its configuration as a stranger would, then load and use it."""
    source = item(place, name)
    copy = place.folder / "copy"
    shutil.copytree(source, copy)
    (path,) = copy.iterdir()
    files = sorted(file for file in path.rglob("*") if file.is_file() and file.name != CARD_FILE)
    file = files[int(generator.integers(len(files)))]
    edited = generator.random() < _EDITED_SHARE
    told = _edit_config(path, generator) if edited else mangle_bytes(file, generator)
    use = _use_tokenizer if name.startswith("tokenizer") else _use_policy
    expected = _expected(place, name, partial(use, source / path.name))
    found = _outcome(partial(use, path), told)
    if found is not None and found != expected and not edited:
        raise Broken(f"{told}: loaded as if nothing had changed")
    return 1


def mangle_encoded(name: str, generator: np.random.Generator, place: Place) -> int:
    """Damage one file of a set of tokens, or edit what it says of itself or of its tokenizer, then decode all of it."""
    source = item(place, name) / "tokens"
    copy = place.folder / "tokens"
    shutil.copytree(source, copy)
    files = sorted(file for file in copy.rglob("*") if file.is_file() and file.name not in (CARD_FILE, "lock"))
    edited = generator.random() < _EDITED_SHARE
    if not edited:
        told = mangle_bytes(files[int(generator.integers(len(files)))], generator)
    elif generator.random() < 0.5:
        told = edit_json(copy / DESCRIPTION_FILE, generator)
    else:
        told = _edit_config(copy, generator)
    expected = _expected(place, name, partial(_decoded, source, place.folder / "expected"))
    found = _outcome(partial(_decoded, copy, place.folder / "actions"), told)
    if found is not None and found != expected and not edited:
        raise Broken(f"{told}: decoded as if nothing had changed")
    return 1


def _decoded(tokens: Path, out: Path) -> str:
    """Return a digest of the actions that a set of tokens decodes to, as `oat decode` writes them."""
    decode_tokens(DecodeConfig(tokens, out, workers=1))
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(out.glob("data/*.parquet")))).hexdigest()


def _edit_config(path: Path, generator: np.random.Generator) -> str:
    """Change a value of one configuration and give it the right digest."""
    folders = sorted(file.parent for file in path.rglob(CONFIG_FILE))
    folder = folders[int(generator.integers(len(folders)))]
    config: dict[str, Any] = json.loads((folder / CONFIG_FILE).read_text("utf-8"))
    told = mangle_json(config, generator)
    config.pop("config_sha256", None)
    write_config(folder, config)
    return f"{folder.name}/{CONFIG_FILE}: {told}"


def _use_tokenizer(path: Path) -> str:
    """Return a digest of what a tokenizer does with fixed chunks."""
    tokenizer = load_tokenizer(path)
    tokens = tokenizer.encode(smooth_chunks(5, seed=3))
    return hashlib.sha256(tokens.ids.numpy().tobytes() + tokenizer.decode(tokens).numpy().tobytes()).hexdigest()


def _use_policy(path: Path) -> str:
    """Return a digest of what a policy or an export does with fixed observations."""
    chunk = load_predictor(path).predict_chunk(observe(3))
    return hashlib.sha256(chunk.actions.numpy().tobytes()).hexdigest()


def _expected(place: Place, name: str, digest: Callable[[], str]) -> str:
    """Return what the undamaged original gives, which is computed once."""
    file = place.workshop / f"expected-{name}.json"
    if not file.exists():
        ended = call(digest, 120)
        assert ended.status == 0, ended.output
        file.write_text(json.dumps(ended.answer))
    return str(json.loads(file.read_text()))


def _outcome(function: Callable[[], str], told: str) -> str | None:
    """Return what a function gives in a child, or None where a typed error refused; anything else is broken."""
    ended = call(partial(_or_refused, function), _SECONDS, _MEMORY)
    try:
        ended.check()
    except Broken as error:
        raise Broken(f"{told}: {error}") from error
    return None if ended.answer is None else str(ended.answer)


def _or_refused(function: Callable[[], str]) -> str | None:
    try:
        return function()
    except OatError:
        return None
