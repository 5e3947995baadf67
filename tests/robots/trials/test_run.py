"""What an operator can get wrong is told before the robot moves; and policies on disk are served for the occasion."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oat.data.episodes import STATE
from oat.errors import InvalidOption, OatError, PolicyServerError
from oat.experiments.paper.trials import PUBLISHED_TRIALS
from oat.policies.decoding import Denoising, TokenDecoding
from oat.policies.stopping import Fixed
from oat.robots.trials.config import Contender, Driving, TrialsConfig
from oat.robots.trials.log import TrialLog
from oat.robots.trials.plan import Trial
from oat.robots.trials.run import judge_policies, make_robot, make_trials, plan_trials
from oat.robots.trials.session import Judgement
from tests.policies.small import STATE_DIM, policy_of
from tests.robots.trials.stage import Point, fill, new_log
from tests.serving.running import serving

ROBOT = "tests.robots.trials.test_run:Arm"
UNREACHABLE = "ws://127.0.0.1:9"


class Arm(Point):
    """Sees what the small policies see, and judges itself: nothing ever succeeds."""

    name = "arm"

    def observe(self) -> dict[str, np.ndarray]:
        return {STATE: np.zeros(STATE_DIM, np.float32)}

    def prepare(self, trial: Trial) -> bool:
        self.told.clear()
        return True

    def finished(self) -> bool:
        return len(self.told) >= 20

    def verdict(self, trial: Trial) -> Judgement:
        return Judgement("failure")


def _config(folder: Path, **changes: Any) -> TrialsConfig:
    values: dict[str, Any] = {
        **{"log": folder / "trials.jsonl", "methods": (f"OAT_8={UNREACHABLE}",), "tasks": ("push",), "trials": 1},
        **{"robot": ROBOT, "patience": 0.2, "driving": Driving(fps=2000, ahead=0, max_age=60)},
    }
    return TrialsConfig(**{**values, **changes})


def test_a_method_is_a_name_a_policy_and_perhaps_a_number_of_tokens() -> None:
    assert Contender.parse("OAT_4=ws://gpu:8000,num_tokens=4") == Contender("OAT_4", "ws://gpu:8000", 4)
    assert Contender.parse("my policy=runs/a b") == Contender("my policy", "runs/a b")
    assert not Contender.parse("DP=runs/dp").is_served
    for wrong in ("DP", "=ws://gpu", "DP=", "DP=ws://gpu,num_tokens=0", "DP=ws://gpu,tokens=4", "A,B=ws://gpu"):
        with pytest.raises(InvalidOption, match="NAME=POLICY"):
            Contender.parse(wrong)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": (f"DP={UNREACHABLE}", "DP=ws://other")}, "name methods, each once, got DP, DP"),
        ({"methods": ()}, "name methods, each once, got none"),
        ({"methods": tuple(f"{n}={UNREACHABLE}" for n in range(27))}, "at most 26 methods"),
        ({"tasks": ("push", "push")}, "name tasks, each once"),
        ({"robot": None}, "--robot MODULE:FUNCTION"),
        ({"trials": 0}, "trials and patience must be positive"),
    ],
)
def test_a_series_that_makes_no_sense_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        _config(tmp_path, **changes)


@pytest.mark.parametrize("wrong", [{"fps": 0}, {"seconds": 0}, {"max_age": -1}])
def test_driving_that_makes_no_sense_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidOption, match="must be positive"):
        Driving(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("arm", "MODULE:FUNCTION"),
        (":connect", "MODULE:FUNCTION"),
        ("no_such_arm:connect", "'no_such_arm' cannot be imported: No module named"),
        ("broken:connect", "'broken' cannot be imported: No module named 'pyrobot'"),
        ("arm:conect", "unknown function of arm 'conect'. Did you mean 'connect'?"),
        ("arm:speed", "unknown function of arm 'speed'"),
        ("arm:connect", "arm:connect gives a dict, which lacks some of observe, act and stop"),
    ],
)
def test_a_robot_that_is_none_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "arm", raising=False)
    (tmp_path / "arm.py").write_text("speed = 3\n\ndef connect():\n    return {}\n")
    (tmp_path / "broken.py").write_text("import pyrobot\n")
    with pytest.raises(OatError, match=message):
        make_robot(name)


def test_servers_that_cannot_be_used_are_told_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(PolicyServerError, match=f"{UNREACHABLE} cannot be reached"):
        make_trials(_config(tmp_path))
    with serving(policy_of("quest")) as server:
        url = f"ws://127.0.0.1:{server.port}"
        for changes, message in (
            ({"methods": (f"QueST={url},num_tokens=2",)}, "quest has no prefixes that decode"),
            ({"methods": (f"QueST={url}",), "tasks": ("push", "fly")}, "unknown task 'fly'"),
        ):
            with pytest.raises(PolicyServerError, match=message):
                make_trials(_config(tmp_path, **changes))
    (tmp_path / "key").write_text("")
    with pytest.raises(InvalidOption, match="holds no key"):
        make_trials(_config(tmp_path, api_key_file=tmp_path / "key"))
    with pytest.raises(InvalidOption, match="ahead must be"), serving(policy_of("quest")) as server:
        methods = (f"QueST=ws://127.0.0.1:{server.port}",)
        make_trials(_config(tmp_path, methods=methods, driving=Driving(ahead=17)))
    assert not (tmp_path / "trials.jsonl").exists()


def test_policies_on_disk_and_on_servers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every method over a socket of its own: by a path, by an address with a key, the same policy with other tokens."""
    policy_of("oat").save(tmp_path / "oat")
    (tmp_path / "key").write_text("secret")
    with serving(policy_of("diffusion"), api_key_file=tmp_path / "key") as server:
        config = _config(
            tmp_path,
            methods=(
                f"DP=ws://127.0.0.1:{server.port}",
                f"OAT_2={tmp_path / 'oat'},num_tokens=2",
                f"OAT_8={tmp_path / 'oat'}",
            ),
            api_key_file=tmp_path / "key",
            trials=2,
        )
        judge_policies(config)
        assert "OAT_2 0 / 2" in " ".join(capsys.readouterr().out.split())
        written = (tmp_path / "trials.jsonl").read_bytes()
        judge_policies(config)  # nothing is left to do but to show
        assert "OAT_2 0 / 2" in " ".join(capsys.readouterr().out.split())
        assert (tmp_path / "trials.jsonl").read_bytes() == written


def test_how_chunks_were_decoded_is_written_and_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    decoding = TokenDecoding(samples=3, stop=Fixed(5))
    with serving(policy_of("oat"), decoding) as oat, serving(policy_of("diffusion")) as diffusion:
        methods = (
            f"DP=ws://127.0.0.1:{diffusion.port}",
            *(f"OAT_{tokens}=ws://127.0.0.1:{oat.port},num_tokens={tokens}" for tokens in (5, 8)),
        )
        log = make_trials(_config(tmp_path, methods=methods))
    found = {log.plan.method(record.trial): record for record in TrialLog.read(log.path).records}
    told = {name: (record.samples, record.decoding) for name, record in found.items()}
    of_oat = (3, decoding.name)
    assert told == {"DP": (1, Denoising().name), "OAT_5": of_oat, "OAT_8": of_oat}
    assert all(record.chunks > 0 for record in found.values())
    per_chunk = {name: record.tokens / record.chunks for name, record in found.items()}
    assert per_chunk == {"DP": Denoising().steps, "OAT_5": 5, "OAT_8": 5}
    shown = "".join(capsys.readouterr())
    assert not any(word in shown for word in (decoding.name, Denoising().name, "OAT_"))
    judge_policies(TrialsConfig(log.path, table=True))
    assert "tokens per chunk" in (tmp_path / "trials.md").read_text()


def test_the_seed_is_drawn_once(tmp_path: Path) -> None:
    assert plan_trials(_config(tmp_path)).seed != plan_trials(_config(tmp_path)).seed
    assert plan_trials(_config(tmp_path, seed=3)).seed == 3
    log = fill(new_log(tmp_path), {"DP": "------", "OAT_1": "------", "OAT_8": "++++++"})
    assert plan_trials(_config(tmp_path)).seed == log.plan.seed


def test_a_table_is_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(new_log(tmp_path), {"DP": "------", "OAT_1": "------", "OAT_8": "++++++"})
    judge_policies(TrialsConfig(tmp_path / "trials.jsonl", table=True), PUBLISHED_TRIALS)
    assert "OAT_8 acts better than DP: held" in capsys.readouterr().out
    assert "| OAT_8 | 3 / 3 |" in (tmp_path / "trials.md").read_text()
    assert r"\toprule" in (tmp_path / "trials.tex").read_text()
    with pytest.raises(InvalidOption, match="does not exist"):
        judge_policies(TrialsConfig(tmp_path / "nowhere.jsonl", table=True))
