"""PushT: human demonstrations replay to their end, and what is trained on them acts in the simulator."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from oat.data.episodes import IMAGES, STATE, Episodes, open_dataset
from oat.errors import SimulatorError, UnknownName
from oat.evaluation.protocol import find_protocol
from oat.interfaces import Environment, ExpertConfig, Simulator
from oat.sims import load_simulator
from oat.sims.pusht import CAMERA, PushT, PushTEnv
from tests.test_cli import oat

PUSHT = os.environ.get("OAT_TEST_PUSHT")
needs_demonstrations = pytest.mark.skipif(PUSHT is None, reason="OAT_TEST_PUSHT is not set")


def demonstrations() -> Episodes:
    assert PUSHT is not None
    return open_dataset(PUSHT)


def test_is_a_simulator_with_one_task() -> None:
    simulator = load_simulator("pusht")
    assert isinstance(simulator, Simulator)
    assert simulator.tasks == ("pusht",)
    assert isinstance(simulator.make("pusht"), Environment)
    assert find_protocol("pusht").max_steps == 300
    with pytest.raises(UnknownName, match="Did you mean 'pusht'"):
        simulator.make("push-t")
    with pytest.raises(UnknownName, match="Did you mean 'img'"):
        simulator.make("pusht", ("image",))


def test_nobody_demonstrates_but_people() -> None:
    assert PushT().demonstrator == "human"
    with pytest.raises(SimulatorError, match=r"demonstrated by people.*pusht_cchi_v7_replay.zarr to --data"):
        PushT().expert("pusht", ExpertConfig())


def test_conditions_are_distinct_and_their_episodes_repeat() -> None:
    simulator = PushT()
    selection, reporting = (simulator.conditions("pusht", split) for split in ("selection", "reporting"))
    assert not set(selection[:1000]) & set(reporting[:1000])
    assert selection[-1] < reporting[0]
    env, other = PushTEnv(), PushTEnv((CAMERA,))
    assert len({env.reset(condition)[STATE].tobytes() for condition in reporting[:20]}) == 20
    actions = np.random.default_rng(0).uniform(100, 400, (40, 2)).astype(np.float32)
    episodes = []
    for simulated in (env, other, env):
        states = [simulated.reset(reporting[0])[STATE]]
        states += [simulated.step(action).observation[STATE] for action in actions]
        episodes.append(np.stack(states))
    np.testing.assert_array_equal(episodes[0], episodes[1])
    np.testing.assert_array_equal(episodes[0], episodes[2])


def test_holding_stays_where_the_disc_is() -> None:
    env = PushTEnv()
    env.reset(0)
    env.step(env.hold() + np.float32(60))
    for _ in range(10):  # it has some speed left
        held = env.step(env.hold())
    np.testing.assert_allclose(env.step(env.hold()).observation[STATE], held.observation[STATE], atol=0.1)


def test_begins_at_the_state_that_is_given() -> None:
    """In the other order, which gym-pusht's own reset has, the block would begin about 90 pixels away."""
    state = np.array([222, 97, 222.99382, 381.59903, 3.0079994], np.float32)
    np.testing.assert_allclose(PushTEnv().reset_to(state)[STATE], state, atol=1e-3)


def test_the_block_on_its_outline_is_success() -> None:
    env = PushTEnv()
    env.reset_to(np.array([100, 100, 256, 256, np.pi / 4], np.float32))
    outcome = env.step(env.hold())
    assert outcome.success
    assert outcome.score == 1
    env.reset_to(np.array([100, 100, 256, 300, np.pi / 4], np.float32))
    outcome = env.step(env.hold())
    assert not outcome.success
    assert 0.1 < outcome.score < 0.9


def test_the_picture_shows_where_actions_lead() -> None:
    """The disc is blue, and it is where the path begins and where it ends when the disc has gone there."""
    env = PushTEnv()
    env.reset_to(np.array([60, 100, 300, 300, 0], np.float32))
    path = env.foresee(np.array([[120, 90], [200, 60]], np.float32))
    assert path.shape == (3, 2)
    for place, action in ((path[0], env.hold()), (path[-1], np.array([200, 60], np.float32))):
        for _ in range(15):
            env.step(action, observe=False)
        column, row = (256 * place).astype(int)
        red, _, blue = env.render(256)[row, column].astype(int)
        assert blue > red + 100


@needs_demonstrations
def test_demonstrations_replay() -> None:
    """From their first states the recorded actions lead through the recorded states to a score above 0.9."""
    episodes, env = demonstrations(), PushTEnv()
    states, best = episodes.observation(STATE), []
    for episode in range(0, len(episodes), 8):
        frames = episodes.frames(episode)
        recorded = states[frames]
        observations, scores = [env.reset_to(recorded[0])[STATE]], []
        for action in episodes.actions[frames]:
            outcome = env.step(action)
            observations.append(outcome.observation[STATE])
            scores.append(outcome.score)
        best.append(max(scores))
        np.testing.assert_allclose(np.stack(observations[:-1]), recorded, atol=0.01)
    assert np.mean(best) > 0.9


@needs_demonstrations
def test_images_are_the_demonstrations() -> None:
    episodes, env = demonstrations(), PushTEnv((CAMERA,))
    frames = episodes.starts[:20]
    states, images = episodes.observation(STATE)[frames], episodes.observation(IMAGES + CAMERA)[frames]
    for state, image in zip(states, images):
        seen = env.reset_to(state)[IMAGES + CAMERA]
        assert seen.shape == image.shape
        assert np.abs(seen.astype(float) - image).mean() < 0.5  # of 255; the drawing library smooths edges otherwise


@needs_demonstrations
def test_a_policy_trained_on_the_demonstrations_acts(tmp_path: Path) -> None:
    assert PUSHT is not None
    oat("convert", PUSHT, tmp_path / "data", "--episodes", "0:4")
    for command in (
        "fit --data data --tokenizer bin --action-horizon 16 --out bin",
        "train --data data --tokenizer bin --preset tiny --steps 2 --demonstrator human --out policy "
        f"--observe {STATE} {IMAGES}{CAMERA}",
        "eval policy --sim pusht --episodes 2 --workers 2 --out records",
    ):
        done = oat(*command.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert "score" in done.stdout
    records = [json.loads(line) for line in (tmp_path / "records/records.jsonl").read_text().splitlines()]
    assert [record["steps"] for record in records] == [300, 300]
    assert all(0 <= record["score"] <= record["best_score"] <= 1 for record in records)
    assert {record["data_source"] for record in records} == {"human"}
