"""A data format or an action transform that is registered from outside works everywhere, without any other change."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

import oat
from oat.cli import main
from oat.data.episodes import STATE, Episodes, open_dataset
from oat.data.formats import FORMATS, DataFormat
from oat.data.transforms import TRANSFORMS, ActionTransform, Chain, Delta, parse
from oat.errors import TransformError, UnknownFormat


def read_csv(path: Path) -> Episodes:
    """Read a toy format: one line per frame with the episode's number, the state and the action."""
    rows = np.loadtxt(path, np.float32, delimiter=",", ndmin=2)
    lengths = np.unique(rows[:, 0], return_counts=True)[1]
    return Episodes.from_arrays(
        rows[:, 2:].copy(),
        lengths,
        ["wave"] * len(lengths),
        observations={STATE: rows[:, 1:2].copy()},
        fps=5.0,
        source=f"{path} (CSV)",
    )


CSV = DataFormat("a .csv of a test", lambda path: path.suffix == ".csv", read_csv)


@dataclass(frozen=True)
class Scaled(ActionTransform):
    """Divide actions by the size of the state: a toy transform with an option and a state of its own."""

    kind: ClassVar[str] = "scaled"
    dims: tuple[int, ...] = (0,)
    state: str = STATE

    @property
    def state_key(self) -> str | None:
        return self.state

    def output_dim(self, action_dim: int, state_dim: int | None = None) -> int:
        if max(self.dims) >= action_dim or state_dim is None:
            raise TransformError(f"scaled: dims {self.dims} of {action_dim}, state of {state_dim}")
        return action_dim

    def forward(self, actions: Tensor, state: Tensor | None = None) -> Tensor:
        return actions / self._factors(actions, state)

    def inverse(self, actions: Tensor, state: Tensor | None = None) -> Tensor:
        return actions * self._factors(actions, state)

    def _factors(self, actions: Tensor, state: Tensor | None) -> Tensor:
        assert state is not None
        factors = torch.ones(len(actions), 1, actions.shape[-1])
        factors[..., list(self.dims)] = 1 + state.norm(dim=-1)[:, None, None]
        return factors


@pytest.fixture
def csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Register the toy format, and write a set of eight episodes in it."""
    monkeypatch.setitem(FORMATS, "csv", CSV)
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    episodes = np.repeat(np.arange(8), 12)[:, None]
    path = tmp_path / "set.csv"
    np.savetxt(path, np.hstack([episodes, generator.normal(size=(96, 3))]), delimiter=",")
    return path


@pytest.fixture
def _scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the toy transform for the time of a test."""
    monkeypatch.setitem(TRANSFORMS, Scaled.kind, Scaled)


def test_a_new_format_is_opened_inspected_and_converted(csv: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = open_dataset(csv, ranges="2:8")
    assert (len(read), read.action_dim, read.fps) == (6, 2, 5.0)
    main(["inspect", str(csv), "--json"])
    printed = capsys.readouterr().out
    summary = json.loads(printed)
    assert summary["source"] == f"{csv} (CSV)"
    assert (summary["episodes"], summary["frames"], len(summary["dimensions"])) == (8, 96, 2)
    main(["convert", str(csv), "converted"])
    converted = open_dataset("converted")
    np.testing.assert_array_equal(converted.actions, read_csv(csv).actions)
    assert converted.fps == 5.0


@pytest.mark.usefixtures("csv")
def test_a_new_format_is_listed_among_the_readable_ones(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(UnknownFormat, match=r"\.npz with .*, or a \.csv of a test\."):
        open_dataset(tmp_path / "notes.txt")


@pytest.mark.usefixtures("_scaled")
@pytest.mark.parametrize("transform", [Scaled((1,)), Chain((Scaled(), Delta(dims=(1,))))], ids=str)
def test_a_new_transform_has_a_text_form_and_a_configuration(transform: ActionTransform) -> None:
    described = json.dumps(transform.to_json())
    assert parse(described) == transform
    assert ActionTransform.from_json(json.loads(described)) == transform
    assert parse("scaled") == Scaled()
    with pytest.raises(TransformError, match="scaled"):
        parse('{"kind": "scaled", "dim": 3}')


@pytest.mark.usefixtures("_scaled")
@pytest.mark.parametrize(
    "text", ["scaled", '{"kind": "chain", "steps": [{"kind": "scaled", "dims": [1]}, {"kind": "delta"}]}']
)
def test_a_new_transform_is_fitted_and_saved_with_its_tokenizer(csv: Path, text: str) -> None:
    fit = ["fit", "--tokenizer", "bin", "--data", str(csv), "--out", "run", "--action-horizon", "4"]
    main([*fit, "--transform", text])
    tokenizer: Any = oat.load_tokenizer("run")
    assert tokenizer.space.transform == parse(text)
    assert tokenizer.space.transform.state_key == STATE
    read = open_dataset(csv)
    actions = read.actions[read.frames(0)][None, :4]
    state = read.observation(STATE)[np.array([0])]
    restored = tokenizer.decode(tokenizer.encode(actions, state=state), state=state)
    np.testing.assert_allclose(np.asarray(restored), actions, atol=0.1)
    elsewhere = tokenizer.decode(tokenizer.encode(actions, state=state), state=state + 5)
    assert not np.allclose(np.asarray(elsewhere), actions, atol=0.1)
