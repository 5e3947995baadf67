"""The model card beside every checkpoint: true, complete, accepted by the Hub's parser, and its example runs."""

import re
from pathlib import Path
from typing import Any

import pytest
import tyro
from huggingface_hub import ModelCard as HubCard

from oat.cli.kinds import fit_verb, train_verb
from oat.data.episodes import STATE
from oat.io.checkpoints import CARD_FILE, CONFIG_FILE, load_checkpoint
from oat.io.commands import command_line
from oat.policies import Policy, load_policy
from oat.tokenizers import BaseTokenizer
from oat.tokenizers.loading import load_tokenizer
from oat.training.config import FitConfig, TrainPolicyConfig
from oat.training.policies import train_policy
from oat.training.tokenizers import fit_tokenizer
from tests.datasets import make_episodes, write_npz
from tests.policies.small import observe, policy_of
from tests.tokenizers.fitted import fitted, smooth_chunks

RATES, MEASURES = "Rate and distortion on held-out data", "Measures on held-out data"
FEW = {"steps": 4, "validate_every": 2, "batch_size": 8}


def sections(measured: str) -> list[str]:
    return ["How to load it", "Shapes", "Data", "Normalisation", measured, "Training", "Citation"]


def read_table(text: str, heading: str) -> list[list[str]]:
    """The rows of the tables in a section, without their headers."""
    section = text.split(f"## {heading}\n")[1].split("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [cells for number, cells in enumerate(lines) if not cells[0].startswith("---") and number > 0]


def stored_measures(model: BaseTokenizer | Policy) -> dict[str, float]:
    assert model.training_record.measures is not None
    return model.training_record.measures.to_json()


def run_example(text: str, directory: Path, names: dict[str, Any]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    exec(compile(example.replace("DIRECTORY", str(directory)), CARD_FILE, "exec"), names)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_npz(tmp_path / "data.npz", make_episodes(20, tasks=2))


@pytest.mark.parametrize("kind", ["bin", "fast", "quest", "oat", "rvq"])
def test_a_fitted_tokenizer_has_a_card(kind: Any, data: Path, tmp_path: Path) -> None:
    recipe = FEW if kind in ("quest", "oat") else {}
    config = FitConfig.of(data, tmp_path / "run", kind, "tiny", action_horizon=8, **recipe)
    fit_tokenizer(config)
    tokenizer = load_tokenizer(config.out)
    folder = config.out if kind in ("bin", "fast", "rvq") else config.out / "best"
    text = (folder / CARD_FILE).read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == sections(RATES)
    card = HubCard.load(folder / CARD_FILE)
    assert card.data.library_name == "oat"
    assert set(card.data.tags or []) == {"robotics", "action-tokenizer", kind}
    described, _ = load_checkpoint(folder, {kind})
    assert described["weights_sha256"] in text
    assert ["data", str(data)] in read_table(text, "Data")
    assert ["episodes", "20"] in read_table(text, "Data")
    assert command_line("fit", config) in text
    assert text.split("## Normalisation\n\n")[1].startswith("min_max:")
    ranges = [[float(cell) for cell in row] for row in read_table(text, "Normalisation")]
    assert [row[1:] for row in ranges] == [pytest.approx(row, rel=1e-3) for row in tokenizer.normalizer.ranges()]
    measures, measured = stored_measures(tokenizer), read_table(text, RATES)
    if kind == "oat":
        for k, row in enumerate(measured[:8], start=1):
            assert row == [str(k), f"{k * 9.966:.1f}", f"{measures[f'mse_{k}']:.4g}"]
    else:
        assert any(f"{measures[name]:.4g}" in row for row in measured for name in measures if name.startswith("mse"))
    if kind in ("quest", "oat"):
        training = dict(read_table(text, "Training"))
        assert training["steps taken"] in ("2", "4")
        assert training["batch size"] == "8"
    run_example(text, folder, {"actions": smooth_chunks(3, horizon=8)})


@pytest.mark.parametrize("kind", ["autoregressive", "diffusion", "regression"])
def test_a_trained_policy_has_a_card_and_so_has_its_tokenizer(kind: Any, data: Path, tmp_path: Path) -> None:
    tokenizer = None
    if kind == "autoregressive":
        fit_tokenizer(FitConfig.of(data, tmp_path / "oat", "oat", "tiny", action_horizon=8, **FEW))
        tokenizer = tmp_path / "oat"
    config = TrainPolicyConfig.of(
        data, tmp_path / "run", "tiny", policy=kind, tokenizer=tokenizer, action_horizon=8, **FEW
    )
    train_policy(config)
    folder = tmp_path / "run" / "best"
    text = (folder / CARD_FILE).read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == sections(MEASURES)
    assert set(HubCard.load(folder / CARD_FILE).data.tags or []) == {"robotics", "robot-policy", kind}
    assert command_line("train", config) in text
    assert [f"`{STATE}`, one frame", "4"] in read_table(text, "Shapes")
    measures, measured = stored_measures(load_policy(folder)), read_table(text, MEASURES)
    assert text.split("## Normalisation\n\n")[1].startswith("min_max:")
    if kind != "autoregressive":
        assert ["MSE in model space", f"{measures['mse']:.4g}"] in measured
    else:
        values = [f"{measures[f'{name}_3']:.4g}" for name in ("nll", "accuracy", "mse")]
        assert ["3", *values] in measured
        assert (folder / "tokenizer" / CARD_FILE).read_text() == (tmp_path / "oat" / "best" / CARD_FILE).read_text()


@pytest.mark.parametrize("kind", ["oat", "diffusion", "regression"])
def test_a_policy_s_example_runs(kind: str, tmp_path: Path) -> None:
    policy_of(kind).save(tmp_path / "policy")
    run_example((tmp_path / "policy" / CARD_FILE).read_text(), tmp_path / "policy", {"observation": observe(1)})


def test_saving_again_keeps_the_card_and_editing_it_harms_nothing(tmp_path: Path) -> None:
    tokenizer = fitted("oat")
    tokenizer.save(tmp_path / "a")
    card = (tmp_path / "a" / CARD_FILE).read_text()
    assert card.count("Not recorded.") == 3  # nobody trained it: no data, no measures, no training
    (tmp_path / "a" / CARD_FILE).write_text("my own words")
    load_tokenizer(tmp_path / "a").save(tmp_path / "b")
    assert (tmp_path / "b" / CARD_FILE).read_text() == card
    assert (tmp_path / "b" / CONFIG_FILE).read_text() == (tmp_path / "a" / CONFIG_FILE).read_text()


@pytest.mark.parametrize(
    "config",
    [
        FitConfig(Path("data"), Path("out")),
        FitConfig.of(Path("my data"), Path("out"), "fast", seed=3, resume=True, scale=5.0),
        FitConfig.of(
            Path("data"),
            Path("out"),
            preset="paper",
            transform='{"kind": "relative", "dims": [0, 1]}',
            levels=(8, 6, 5),
            causal_decoder=False,
            steps=7,
            compile=True,
        ),
        TrainPolicyConfig.of(Path("data"), Path("out"), "tiny", learning_rate=0.5),
        TrainPolicyConfig(Path("data"), Path("out"), "diffusion", observe=("a", "b"), freeze_vision=True),
        TrainPolicyConfig(Path("data"), Path("out"), "regression"),
        TrainPolicyConfig.of(
            Path("data"), Path("out"), "paper", "regression", loss="l1", mlp_depth=5, weight_decay=0.0
        ),
    ],
)
def test_the_command_gives_the_configuration(config: FitConfig | TrainPolicyConfig) -> None:
    import shlex
    from dataclasses import replace

    verb = "fit" if isinstance(config, FitConfig) else "train"
    words = shlex.split(command_line(verb, config))
    assert words[:2] == ["oat", verb]
    parsed = list[Any]()
    make: Any = fit_verb if verb == "fit" else train_verb
    tyro.cli(make(parsed.append, words[2:]), args=words[2:])
    assert parsed == [replace(config, resume=False)]
