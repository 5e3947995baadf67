"""Which episodes are run is decided, and what does not fit refused, before anything is started."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oat.errors import InvalidOption, OatError, UnknownName
from oat.evaluation.config import EvalConfig
from oat.evaluation.plan import Plan, plan_evaluation
from oat.evaluation.protocol import protocol_name
from oat.experiments.study.methods import (
    FLOW,
    FULL_REGISTERS,
    LEVEL_SETS,
    UNORDERED,
    UNORDERED_FULL_REGISTERS,
    Method,
    with_horizons,
    with_levels,
)
from oat.interfaces import Split
from oat.io.checkpoints import fingerprint
from oat.io.training_record import TrainingRecord
from oat.policies import AutoregressivePolicy, Denoising, TokenDecoding, load_policy
from oat.sims.metaworld import MetaWorld
from oat.tokenizers import BaseTokenizer
from oat.tokenizers.space import ActionSpace
from tests.evaluation.untrained import TASKS, save_policy
from tests.policies.small import CONFIG, CONTEXT, head_of
from tests.tokenizers.fitted import untrained


class FewStates(MetaWorld):
    """A benchmark with three initial conditions for reporting."""

    def conditions(self, task: str, split: Split) -> range:
        return range(10, 13) if split == "reporting" else range(5)


def plan(path: Path, simulator: MetaWorld | None = None, **options: Any) -> Plan:
    config = EvalConfig(path, sim="metaworld", out=Path("out"), **{"episodes": 4, "seeds": 2, **options})
    return plan_evaluation(config, load_policy(path), simulator or MetaWorld())


@pytest.fixture(scope="module")
def oat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("oat") / "policy", "oat")


@pytest.fixture(scope="module")
def diffusion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_policy(tmp_path_factory.mktemp("diffusion") / "policy", "diffusion")


def test_every_decoding_meets_the_same_conditions(oat: Path) -> None:
    episodes = plan(oat, num_tokens=(1, 8), videos=2).episodes
    assert len(episodes) == 2 * 2 * 8
    assert len({episode.key for episode in episodes}) == len(episodes)
    met = {
        (task, decoding): [e.key.condition for e in episodes if (e.key.task, e.key.decoding) == (task, decoding)]
        for task in TASKS
        for decoding in ("K=1", "K=8")
    }
    first = next(iter(met.values()))
    assert len(set(first)) == 8
    assert all(conditions == first for conditions in met.values())
    assert [e.evaluation_seed for e in episodes[:8]] == [0] * 4 + [1] * 4
    assert [e.film for e in episodes[:8]] == [True, True] + [False] * 6
    assert list(dict.fromkeys(e.key.task for e in episodes)) == sorted(TASKS)  # task after task, as environments are
    assert {e.key.checkpoint for e in episodes} == {fingerprint(oat)}
    assert {e.decoding for e in episodes} == {TokenDecoding(1), TokenDecoding(8)}


def test_selection_and_reporting_share_no_conditions(oat: Path) -> None:
    reported, selected = ({e.key.condition for e in plan(oat, split=s).episodes} for s in ("reporting", "selection"))
    assert len(reported) == len(selected) == 8
    assert not reported & selected


def test_conditions_repeat_where_there_are_too_few(oat: Path) -> None:
    episodes = plan(oat, FewStates(), tasks=("reach",)).episodes
    assert [(e.key.condition, e.key.repeat) for e in episodes] == [
        *((condition, repeat) for repeat in (0, 1) for condition in (10, 11, 12)),
        *((condition, 2) for condition in (10, 11)),
    ]
    assert len({e.seed for e in episodes}) == 8


def test_ways_to_choose_and_to_stop_have_names(oat: Path, diffusion: Path, tmp_path: Path) -> None:
    def names(path: Path, **options: Any) -> set[str]:
        return {e.key.decoding for e in plan(path, **options).episodes}

    assert names(oat, samples=4) == {"K=8 medoid-of-4"}
    assert names(oat, samples=4, choose="coherent", commit=2, execute=8) == {"K=8 coherent-of-4 commit-2"}
    assert names(oat, samples=4, binary=(2,)) == {"K=8 medoid(binary 2)-of-4"}
    assert names(oat, temperature=(1.0, 0.5), top_k=(0, 3)) == {"K=8 T=1,0.5 top-all,3"}
    assert names(oat, stop=("fixed=2", "fixed=3")) == {"K=8 fixed=2", "K=8 fixed=3"}
    assert names(diffusion, samples=2, choose="contrast") == {"10 steps contrast-of-2"}
    weaker = f"contrast(weaker {fingerprint(diffusion)})-of-2"
    assert names(oat, samples=2, choose="contrast", weaker=diffusion) == {f"K=8 {weaker}"}
    assert names(oat, stop=("random=50/0/50",)) == {"K=8 random-depth=50/0/50"}
    chosen = [e.decoding for e in plan(oat, samples=2, execute=8).episodes]
    assert {each.executed for each in chosen if isinstance(each, TokenDecoding)} == {8}


def test_a_delay_is_another_protocol(oat: Path) -> None:
    (usual, late) = (plan(oat, execute=8, delay=delay).protocol for delay in (0, 4))
    assert usual.hash != late.hash
    assert protocol_name(late.hash) == "metaworld, executing 8, 4 steps late"
    assert replace(late, delay=0).hash == usual.hash


def test_one_way_of_decoding_has_one_name(oat: Path, diffusion: Path, tmp_path: Path) -> None:
    """All of OAT's tokens are K = 8, asked for or not."""
    (every,) = {e.key.decoding for e in plan(oat).episodes}
    assert every == "K=8"
    names = [
        {e.key.decoding for e in plan(oat, **options).episodes}
        for options in ({"greedy": True}, {"temperature": 0.5}, {"top_k": 0}, {"num_tokens": (2,), "top_k": 3})
    ]
    assert names == [{"K=8 greedy"}, {"K=8 T=0.5"}, {"K=8 top-all"}, {"K=2 top-3"}]
    assert {(e.key.method, e.decoding) for e in plan(diffusion).episodes} == {("dp", Denoising(10))}
    assert {e.key.decoding for e in plan(diffusion, denoising_steps=2).episodes} == {"2 steps"}
    regression = save_policy(tmp_path / "policy", "regression")
    assert {(e.key.method, e.key.decoding) for e in plan(regression).episodes} == {("bc", "one pass")}


@pytest.mark.parametrize("preset", ["tiny", "cpu", "paper"])
@pytest.mark.parametrize("kind", ["bin", "fast", "quest", "oat", "rvq"])
def test_a_method_has_one_name_in_every_size(kind: str, preset: str) -> None:
    assert policy_with(untrained(kind, ActionSpace(32, 9), preset)).method == kind


@pytest.mark.parametrize(
    ("method", "name"),
    [
        (UNORDERED, "oat×"),
        (FULL_REGISTERS, "oat-full-registers"),
        (UNORDERED_FULL_REGISTERS, "oat×-full-registers"),
        (FLOW, "oat-flow"),
        *((with_levels(levels), with_levels(levels).slug) for levels in LEVEL_SETS),
        *((with_horizons(*sizes), with_horizons(*sizes).slug) for sizes in ((16, 2), (32, 2), (32, 8), (64, 8))),
        (Method("", "", "oat", {"keep": "powers_of_two"}), "oat-powers-of-two"),
        (Method("", "", "quest", {"causal_decoder": False}, action_horizon=16), "quest-full-decoder-16x4"),
    ],
)
def test_a_variant_has_a_name_of_its_own(method: Method, name: str) -> None:
    assert method.tokenizer is not None
    space = ActionSpace(method.action_horizon, 4)
    assert policy_with(untrained(method.tokenizer, space, "tiny", **method.options)).method == name


def policy_with(tokenizer: BaseTokenizer) -> AutoregressivePolicy:
    return AutoregressivePolicy(CONTEXT, tokenizer, CONFIG, longest=None if tokenizer.total else 8)


def test_who_demonstrated_is_recorded(oat: Path, tmp_path: Path) -> None:
    assert {e.demonstrator for e in plan(oat).episodes} == {"scripted"}  # an old checkpoint: as the benchmark's expert
    policy = load_policy(oat)
    policy.training_record = TrainingRecord(demonstrator="human", seed=3)
    policy.save(tmp_path / "policy")
    (found,) = {(e.demonstrator, e.key.training_seed) for e in plan(tmp_path / "policy").episodes}
    assert found == ("human", 3)


@pytest.mark.parametrize(
    ("demonstrator", "noted", "told"),
    [
        ("human", "unknown", "human"),
        ("human", "scripted", "scripted"),
        ("human", None, "human"),
        ("scripted", "unknown", "unknown"),
    ],
)
def test_where_people_demonstrate_a_silent_data_set_is_theirs(
    demonstrator: str, noted: str | None, told: str, oat: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MetaWorld, "demonstrator", demonstrator)
    policy = load_policy(oat)
    policy.training_record = TrainingRecord(demonstrator=noted)
    policy.save(tmp_path / "policy")
    assert {episode.demonstrator for episode in plan(tmp_path / "policy").episodes} == {told}


@pytest.mark.parametrize(
    ("kind", "options", "error", "message"),
    [
        ("oat", {"tasks": ("raech",)}, UnknownName, "Did you mean 'reach'"),
        ("oat", {"tasks": ("button-press",)}, UnknownName, "unknown task 'button-press'.*drawer-close, reach"),
        ("oat", {"tasks": ("reach", "reach")}, InvalidOption, "tasks must be distinct"),
        ("oat", {"num_tokens": (4, 4)}, InvalidOption, "num_tokens must be distinct"),
        ("oat", {"num_tokens": (9,)}, InvalidOption, "1…8, got 9"),
        ("oat", {"num_tokens": (0,)}, InvalidOption, "at least 1"),
        ("oat", {"execute": 17}, InvalidOption, "predicts 16 actions, fewer than the 17"),
        ("oat", {"execute": 0}, InvalidOption, "at least 1"),
        ("oat", {"temperature": 0.0}, InvalidOption, "use greedy"),
        ("oat", {"remainder": True}, InvalidOption, "trained without a remainder"),
        ("oat", {"decoding": "paper", "top_k": 3, "greedy": True}, InvalidOption, "leave out --top-k, --greedy"),
        ("oat", {"decoding": "tokens", "remainder": True}, InvalidOption, "leave out --remainder"),
        ("regression", {"decoding": "paper"}, InvalidOption, r"no tokens .* leave out --decoding paper$"),
        ("diffusion", {"decoding": "tokens"}, InvalidOption, r"no tokens.* leave out --decoding tokens$"),
        ("oat", {"denoising_steps": 3}, InvalidOption, "leave out --denoising-steps"),
        ("oat", {"samples": 0}, InvalidOption, "samples must be at least 1"),
        ("oat", {"samples": 2, "greedy": True}, InvalidOption, "must be sampled"),
        ("oat", {"weaker": Path("weaker")}, InvalidOption, "add --samples"),
        ("oat", {"choose": "coherent"}, InvalidOption, "add --samples"),
        ("oat", {"samples": 4, "choose": "coherent"}, InvalidOption, "execute fewer than all 16"),
        ("oat", {"stop": ("fixed=9",)}, InvalidOption, "1…8 tokens"),
        ("oat", {"commit": 2}, InvalidOption, "several samples"),
        (
            "oat",
            {"samples": 4, "commit": 12, "execute": 8},
            InvalidOption,
            "at most 8, which are left of a chunk of 16",
        ),
        ("oat", {"samples": 4, "choose": "likelihood", "stop": ("fixed=2",)}, InvalidOption, "leave out stop"),
        ("oat", {"delay": 4}, InvalidOption, "the 4 of the delay"),
        ("oat", {"delay": 4, "samples": 4, "commit": 2, "execute": 8}, InvalidOption, "commit to as many, got 2"),
        ("oat", {"delay": 4, "stop": ("residual=1",), "head": Path("head")}, InvalidOption, "leave out --head"),
        ("oat", {"delay": -1}, InvalidOption, "at least 0"),
        ("oat", {"stop": ("residual=0.1",)}, InvalidOption, "needs --head"),
        ("oat", {"stop": ("hindsight=10%",)}, InvalidOption, "hindsight=10% needs --head"),
        ("oat", {"stop": ("hindsight=0",)}, InvalidOption, "positive"),
        ("oat", {"stop": ("hindsight=1/2",)}, InvalidOption, "needs one number"),
        ("oat", {"stop": ("hindsight=1",), "head": Path("head")}, InvalidOption, "or a percentage"),
        ("oat", {"stop": ("fixed=2.5",)}, InvalidOption, "whole number"),
        ("oat", {"stop": ("fixed",)}, InvalidOption, "needs a number"),
        ("oat", {"stop": ("entropy=1",)}, UnknownName, "unknown stopping rule 'entropy'"),
        ("oat", {"head": Path("head")}, InvalidOption, "a stopping head is for"),
        ("oat", {"stop": ("matched=nowhere",)}, InvalidOption, "does not exist"),
        ("oat", {"decoding": "paper", "samples": 2}, InvalidOption, "leave out --samples"),
        ("diffusion", {"samples": 2, "choose": "likelihood"}, InvalidOption, "no likelihood"),
        ("diffusion", {"stop": ("fixed=2",)}, InvalidOption, "leave out --stop"),
        ("regression", {"samples": 2}, InvalidOption, "leave out --samples"),
        ("oat", {"address": "here:1"}, InvalidOption, "--backend ray"),
        ("oat", {"episodes": 0}, InvalidOption, "episodes must be at least 1"),
        ("oat", {"seeds": 0}, InvalidOption, "seeds must be at least 1"),
        ("oat", {"workers": 0}, InvalidOption, "workers must be at least 1"),
        ("oat", {"batch": 0}, InvalidOption, "batch must be at least 1"),
        ("oat", {"videos": -1}, InvalidOption, "videos must be at least 0"),
        ("bin", {"num_tokens": (4,)}, InvalidOption, "no prefixes"),
        ("diffusion", {"num_tokens": (4,)}, InvalidOption, "generates no tokens"),
        ("diffusion", {"greedy": True}, InvalidOption, "generates no tokens"),
        ("regression", {"num_tokens": (4,)}, InvalidOption, r"generates no tokens .* leave out --num-tokens"),
        ("regression", {"denoising_steps": 3}, InvalidOption, "leave out --denoising-steps"),
        ("diffusion", {"denoising_steps": 0}, InvalidOption, "at least one"),
    ],
)
def test_mistakes_are_told(
    kind: str, options: dict[str, Any], error: type[OatError], message: str, oat: Path, diffusion: Path, tmp_path: Path
) -> None:
    known = {"oat": oat, "diffusion": diffusion}
    with pytest.raises(error, match=message):
        plan(known.get(kind) or save_policy(tmp_path / "policy", kind), **options)


def test_a_policy_for_another_robot_is_refused(tmp_path: Path) -> None:
    arms = save_policy(tmp_path / "arms", action_dim=7)
    with pytest.raises(InvalidOption, match=r"7-D actions, metaworld takes 4-D: .* --sim, or train on .* metaworld$"):
        plan(arms)
    with pytest.raises(InvalidOption, match="trained on fly, swim, which are not tasks of metaworld"):
        plan(save_policy(tmp_path / "bird", tasks=("fly", "swim")))
    forgetful = save_policy(tmp_path / "forgetful", obs_horizon=1)
    with pytest.raises(InvalidOption, match="sees 1 frames, the protocol gives 2"):
        plan(forgetful)


def test_what_belongs_to_another_policy_is_refused(oat: Path, tmp_path: Path) -> None:
    """A stopping head of other weights or other actions, and a weaker policy over another action space."""
    other = load_policy(save_policy(tmp_path / "other", "oat", horizon=8, obs_horizon=1))
    mine = load_policy(oat)
    for name, policy in (("other-head", other), ("my-head", mine)):
        assert isinstance(policy, AutoregressivePolicy)
        head_of(policy).save(tmp_path / name, TrainingRecord())
    stopped: dict[str, Any] = {"stop": ("residual=0.1",), "execute": 8}
    with pytest.raises(InvalidOption, match=r"belongs to policy \w+, over another tokenizer or with other weights"):
        plan(oat, head=tmp_path / "other-head", **stopped)
    with pytest.raises(InvalidOption, match="calibrated for 8 executed actions, got 4"):
        plan(oat, head=tmp_path / "my-head", **{**stopped, "execute": 4})
    contrast: dict[str, Any] = {"samples": 4, "choose": "contrast", "weaker": tmp_path / "other", "execute": 8}
    with pytest.raises(InvalidOption, match="weaker policy's chunks are 8 × 4 numbers, this one's 16 × 4"):
        plan(oat, **contrast)


def test_cameras_and_their_size_are_the_policys(oat: Path) -> None:
    policy = load_policy(oat)
    context = policy.context.config
    policy.context.config = replace(context, cameras=("observation.images.corner2",), camera_sizes=((64, 64),))
    config = EvalConfig(oat, sim="metaworld", out=Path("out"))
    protocol = plan_evaluation(config, policy, MetaWorld()).protocol
    assert (protocol.cameras, protocol.image_size) == (("corner2",), 64)
    policy.context.config = replace(policy.context.config, camera_sizes=((64, 48),))
    with pytest.raises(InvalidOption, match="square images"):
        plan_evaluation(config, policy, MetaWorld())
