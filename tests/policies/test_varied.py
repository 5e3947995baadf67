"""Policies of people's demonstrations: sampled tokens alone, unless a decoding says otherwise."""

from dataclasses import replace
from pathlib import Path

import pytest

from oat.errors import CheckpointError
from oat.export.export import Agreement, export_policy
from oat.export.loading import load_runtime
from oat.io.commands import command_line
from oat.policies import AutoregressivePolicy, DecodingOptions, TokenDecoding, load_policy
from oat.policies.config import AutoregressiveConfig
from oat.policies.learning import PolicySetup
from oat.training.config import TrainPolicyConfig
from tests.policies.small import CONFIG, CONTEXT, knowing, tokenizer_of

SAMPLED = "K=8 T=0.5"
EXACT = "K=8 greedy remainder"


def _names(policy: object, *options: DecodingOptions) -> list[str]:
    return [each.name for asked in options for each in policy.decodings(asked)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("demonstrator", "name"),
    [("scripted", EXACT), ("human", SAMPLED), ("unknown", SAMPLED), ("human and scripted", SAMPLED)],
)
def test_who_demonstrated_decides_how_a_policy_acts(demonstrator: str, name: str) -> None:
    tokenizer = tokenizer_of("oat")
    usual = AutoregressiveConfig.presets()["tiny"].model
    setup = PolicySetup(CONTEXT, tokenizer.space, tokenizer.normalizer, tokenizer, demonstrator=demonstrator)
    policy = AutoregressivePolicy.for_training(setup, usual)
    assert policy.remainder is not None  # it is trained in any case: a decoding may want it
    assert _names(policy, DecodingOptions()) == [name]


def test_the_paper_s_policy_samples_as_the_paper_s_whoever_demonstrated() -> None:
    paper = AutoregressiveConfig.presets()["paper"].model
    assert isinstance(paper, AutoregressiveConfig)
    for demonstrator in ("scripted", "human"):
        assert paper.for_demonstrator(demonstrator) == AutoregressiveConfig()


@pytest.mark.parametrize("preset", ["cpu", "paper"])
@pytest.mark.parametrize("varied", [True, False])
def test_the_recorded_command_is_understood(preset: str, varied: bool) -> None:
    config = TrainPolicyConfig.of(Path("data"), Path("out"), preset, varied=varied)
    assert command_line("train", config).endswith(f"--varied {varied}")


def test_who_says_it_outright_is_not_overruled() -> None:
    tokenizer = tokenizer_of("oat")
    setup = PolicySetup(CONTEXT, tokenizer.space, tokenizer.normalizer, tokenizer, demonstrator="human")
    alike = replace(CONFIG, remainder=1.0, greedy=True, varied=False)
    assert _names(AutoregressivePolicy.for_training(setup, alike), DecodingOptions()) == [EXACT]


def test_a_decoding_may_ask_for_anything_else() -> None:
    policy = knowing("oat", greedy=True, remainder=1.0, varied=True)
    assert policy.default_decoding == TokenDecoding(temperature=0.5)
    assert _names(
        policy,
        DecodingOptions(greedy=True),
        DecodingOptions(greedy=True, remainder=True),
        DecodingOptions(temperature=1.0),
        DecodingOptions(samples=4),
        DecodingOptions.paper(),
    ) == ["K=8 greedy", EXACT, "K=8", "K=8 T=0.5 medoid-of-4", "K=8"]


def test_the_most_likely_tokens_of_any_decoding_have_no_temperature() -> None:
    assert TokenDecoding(4, 0.5, top_k=3, samples=8).most_likely == TokenDecoding(4, greedy=True)
    peoples = knowing("oat", greedy=True, remainder=1.0, varied=True)
    assert peoples.default_decoding.most_likely.name == "K=all greedy"


def test_temperature_one_is_asked_for_by_saying_it() -> None:
    policy = knowing("oat", greedy=True)
    assert _names(policy, DecodingOptions(), DecodingOptions(temperature=1.0)) == ["K=8 greedy", "K=8"]


def test_checkpoints_and_exports_keep_it(tmp_path: Path) -> None:
    knowing("oat", greedy=True, remainder=1.0, varied=True).save(tmp_path / "policy")
    export_policy(tmp_path / "policy", tmp_path / "export")
    for found in (load_policy(tmp_path / "policy"), load_runtime(tmp_path / "export")):
        assert _names(found, DecodingOptions()) == [SAMPLED]


def test_an_export_is_checked_with_its_remainder_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    knowing("oat", greedy=True, remainder=1.0, varied=True).save(tmp_path / "policy")
    asked = list[str]()

    def compared(_first: object, _second: object, decoding: TokenDecoding) -> Agreement:
        asked.append(decoding.name)
        return Agreement(1.0, 1.0 if decoding.remainder else 0.0, 0.0)

    monkeypatch.setattr("oat.export.export.compare", compared)
    with pytest.raises(CheckpointError, match="the exported graphs do not agree"):
        export_policy(tmp_path / "policy", tmp_path / "export")
    assert asked == ["K=all T=0.5", "K=all T=0.5 remainder"]
    assert not (tmp_path / "export").exists()
