"""Checkpoints of strangers: absurd sizes and wrong types end at once, in one line, before anything is built."""

import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oat.errors import CheckpointError, OatError
from oat.export.loading import load_runtime
from oat.policies import load_policy
from oat.tokenizers.loading import load_tokenizer
from tests.export.exported import exported
from tests.io.edits import edit_config, set_value
from tests.policies.small import policy_of
from tests.tokenizers.fitted import fitted

ABSURD = 10**9
TOKENIZER_SIZES = [
    ("oat", "config.encoder_layers"),
    ("oat", "config.decoder.layers"),
    ("oat", "config.latent_horizon"),
    ("oat", "config.levels"),
    ("oat", "config.width.dim"),
    ("oat", "space.action_dim"),
    ("oat", "space.action_horizon"),
    ("quest", "config.kernel"),
    ("quest", "config.encoder_layers"),
    ("fast", "space.action_dim"),
    ("fast", "space.action_horizon"),
    ("bin", "space.action_dim"),
]
POLICY_SIZES = [
    ("oat", "config.layers"),
    ("oat", "longest"),
    ("bin", "longest"),
    ("diffusion", "config.layers"),
    ("diffusion", "context.vector_dims.0"),
    ("diffusion", "context.obs_horizon"),
    ("regression", "config.mlp_depth"),
    ("regression", "config.mlp_width"),
    ("regression", "space.action_horizon"),
]


def _refuses(load: Callable[[], object], limit: float = 20.0) -> None:
    begin = time.perf_counter()
    with pytest.raises(CheckpointError) as caught:
        load()
    assert "\n" not in str(caught.value)
    assert time.perf_counter() - begin < limit


@pytest.mark.parametrize(("kind", "place"), TOKENIZER_SIZES)
def test_absurd_sizes_of_a_tokenizer_are_refused_before_it_is_built(kind: str, place: str, tmp_path: Path) -> None:
    fitted(kind).save(tmp_path / "tokenizer")
    set_value(tmp_path / "tokenizer", place, [ABSURD] * 2 if place == "config.levels" else ABSURD)
    _refuses(lambda: load_tokenizer(tmp_path / "tokenizer"))


@pytest.mark.parametrize(("kind", "place"), POLICY_SIZES)
def test_absurd_sizes_of_a_policy_are_refused_before_it_is_built(kind: str, place: str, tmp_path: Path) -> None:
    policy_of(kind).save(tmp_path / "policy")
    set_value(tmp_path / "policy", place, ABSURD)
    _refuses(lambda: load_policy(tmp_path / "policy"))


@pytest.mark.parametrize("place", ["longest", "outputs", "cache_heads"])
def test_absurd_sizes_of_an_export_are_refused(place: str, tmp_path: Path) -> None:
    _copy(exported("oat")[1], tmp_path)
    set_value(tmp_path, f"shape.{place}", ABSURD)
    _refuses(lambda: load_runtime(tmp_path))


def test_an_export_must_see_what_its_graphs_read(tmp_path: Path) -> None:
    _copy(exported("diffusion")[1], tmp_path)
    set_value(tmp_path, "context.vector_dims.0", ABSURD)
    _refuses(lambda: load_runtime(tmp_path))


def test_huge_images_are_refused(tmp_path: Path) -> None:
    policy_of("regression").save(tmp_path / "policy")
    edit_config(
        tmp_path / "policy", lambda c: c["context"].update(cameras=["observation.images.a"], camera_sizes=[[10**6] * 2])
    )
    with pytest.raises(CheckpointError, match=r"sides of 1…8192 pixels, got \(1000000, 1000000\)"):
        load_policy(tmp_path / "policy")


def test_a_changed_configuration_is_noticed(tmp_path: Path) -> None:
    """The digest covers it, so that a flipped digit of a number that no tensor shows is no silent change."""
    for name, save, load in (
        ("tokenizer", fitted("bin").save, load_tokenizer),
        ("policy", policy_of("diffusion").save, load_policy),
    ):
        save(tmp_path / name)
        file = tmp_path / name / "config.json"
        whole = file.read_text()
        file.write_text(json.dumps(json.loads(whole)))  # another layout is no change
        load(tmp_path / name)
        file.write_text(whole.replace('"version": 1', '"version": 1, "noted": 2'))
        with pytest.raises(CheckpointError, match=r"config.json is damaged"):
            load(tmp_path / name)


def _complaint(load: Callable[[], object]) -> str:
    """What the typed error says, or nothing where it loads; any other exception is a failure of the test."""
    try:
        load()
    except OatError as error:
        return str(error)
    return ""


WRONG: list[Any] = [None, "", "text", -1, 0, 1.5, float("nan"), [], [[]], {}, True, 10**30, [1, "a"], {"a": 1}]


def _places(value: Any, place: str = "") -> list[str]:
    """Every place of a configuration, inner ones included."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    inner = [found for name, each in items for found in _places(each, f"{place}.{name}".strip("."))]
    return [*([place] if place else []), *inner]


@pytest.mark.parametrize("kind", ["bin", "fast", "quest", "oat", "rvq", "diffusion", "regression"])
def test_wrong_types_anywhere_are_refused_in_one_line_or_harmless(kind: str, tmp_path: Path) -> None:
    policy_of(kind).save(tmp_path / "policy")
    draw = random.Random(0)
    for folder in (tmp_path / "policy", *(tmp_path / "policy").glob("tokenizer")):
        whole = (folder / "config.json").read_text()
        for place in _places(json.loads(whole)):
            for value in draw.sample(WRONG, 2):
                set_value(folder, place, value)
                assert "\n" not in _complaint(lambda: load_policy(tmp_path / "policy")), place
                (folder / "config.json").write_text(whole)


def test_mangled_merges_are_refused_in_one_line(tmp_path: Path) -> None:
    fitted("fast").save(tmp_path / "fast")
    whole = json.loads((tmp_path / "fast" / "config.json").read_text())["bpe"]
    draw = random.Random(1)
    for _ in range(60):
        place = draw.randrange(len(whole))
        mangled = whole[:place] + draw.choice(['"', "[", "}", "9", "-1", "null", "a", "丁"]) + whole[place + 1 :]
        set_value(tmp_path / "fast", "bpe", mangled)
        assert "\n" not in _complaint(lambda: load_tokenizer(tmp_path / "fast"))


@pytest.mark.parametrize(
    "change",
    [
        lambda bpe: bpe["model"]["vocab"].update({"丁" * 10**5: len(bpe["model"]["vocab"])}),
        lambda bpe: bpe["model"]["vocab"].pop(next(iter(bpe["model"]["vocab"]))),
        lambda bpe: bpe["model"].update(vocab={}),
        lambda bpe: bpe.pop("model"),
    ],
)
def test_merges_that_are_not_of_coefficients_are_refused(change: Callable[[Any], object], tmp_path: Path) -> None:
    fitted("fast").save(tmp_path / "fast")

    def mangle(config: dict[str, Any]) -> None:
        bpe = json.loads(config["bpe"])
        change(bpe)
        config["bpe"] = json.dumps(bpe)

    edit_config(tmp_path / "fast", mangle)
    _refuses(lambda: load_tokenizer(tmp_path / "fast"))


def _copy(source: Path, target: Path) -> None:
    for file in source.iterdir():
        (target / file.name).write_bytes(file.read_bytes())
