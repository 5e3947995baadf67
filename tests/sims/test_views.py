"""Views show a benchmark as others do; what LeRobot itself shows is compared in `integrations/tests`."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oat.data.episodes import STATE
from oat.errors import MissingExtra, UnknownName
from oat.evaluation.config import EvalConfig
from oat.sims import choose_view, find_simulator
from oat.sims.config import CollectConfig
from oat.sims.metaworld_lerobot import LeRobotMetaWorld, shrink


def test_a_view_is_chosen_by_collect_and_eval(tmp_path: Path) -> None:
    collected = CollectConfig("metaworld", ("reach",), tmp_path, view="lerobot")
    evaluated = EvalConfig(tmp_path, "metaworld", tmp_path, view="lerobot")
    assert collected.simulator == evaluated.sim == "metaworld-lerobot"
    assert replace(evaluated, episodes=3).sim == "metaworld-lerobot"
    assert find_simulator(evaluated.sim).protocol.hash != find_simulator("metaworld").protocol.hash
    assert choose_view("metaworld", None) == "metaworld"
    with pytest.raises(UnknownName, match="view of metaworld"):
        choose_view("metaworld", "gymnasium")
    with pytest.raises(UnknownName, match="view of pusht"):
        choose_view("pusht", "lerobot")


def test_the_state_of_lerobot_s_view_is_the_hand_and_the_gripper() -> None:
    ours = find_simulator("metaworld")().make("reach")
    theirs = LeRobotMetaWorld().make("reach")
    first = ours.reset(3)[STATE]
    seen = theirs.reset(3)
    assert list(seen) == [STATE]  # nothing is rendered that nobody asked for
    np.testing.assert_array_equal(seen[STATE], first[:4])


def test_a_small_picture_has_the_means_of_the_full_one() -> None:
    picture = np.random.default_rng(0).integers(0, 256, (480, 480, 3), np.uint8)
    small = shrink(picture, 96)
    assert small.shape == (96, 96, 3)
    assert small[1, 2, 0] == round(float(picture[5:10, 10:15, 0].mean()))
    np.testing.assert_array_equal(shrink(picture, 480), picture)


def test_without_lerobot_its_sentences_are_missed_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib.metadata

    def absent(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    with pytest.raises(MissingExtra, match="pip install --no-deps lerobot"):
        LeRobotMetaWorld().instruction("reach")
