"""Back to where a demonstration was, or an honest refusal."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oat.data.episodes import STATE, Episodes, open_dataset
from oat.errors import SimulatorError
from oat.experiments.chunk_execution import ChunkExecutor
from oat.experiments.overlays import motion_square, overlay_frames
from oat.sims import load_simulator


@pytest.fixture(scope="module")
def demonstrated(smoke_study: Path) -> tuple[ChunkExecutor, Episodes]:
    data = smoke_study / "smoke" / "metaworld" / "demos"
    return ChunkExecutor(load_simulator("metaworld"), data), open_dataset(data)


def test_an_episode_is_found_and_acted_again(demonstrated: tuple[ChunkExecutor, Episodes]) -> None:
    executor, episodes = demonstrated
    found = [executor.find_condition(episodes, number) for number in range(2)]
    assert len(set(found)) == 2
    frames = episodes.frames(1)
    before, actions = episodes.actions[frames[:20]], episodes.actions[frames[20:30]]
    path = executor.execute("box-close", found[1], before, actions).path
    np.testing.assert_allclose(path, episodes.observation(STATE)[frames[20:31]][:, :3], atol=1e-6)


def test_what_does_not_come_again_is_refused(demonstrated: tuple[ChunkExecutor, Episodes]) -> None:
    executor, episodes = demonstrated
    with pytest.raises(SimulatorError, match="do not lead"):
        executor.find_condition(replace(episodes, actions=-episodes.actions), 0)
    moved = np.asarray(episodes.observation(STATE)[episodes.all_frames()]) + 0.01
    with pytest.raises(SimulatorError, match="no attempt"):
        executor.find_condition(replace(episodes, observations={STATE: moved}), 0)


def test_earlier_moments_are_faint_and_the_last_moment_is_less_so() -> None:
    frames = [np.zeros((480, 480, 3), np.uint8) for _ in range(3)]
    for number, frame in enumerate(frames):
        frame[100:120, 100 + 40 * number : 120 + 40 * number] = 200
    picture = overlay_frames(frames)
    brightness = [int(picture[110, 110 + 40 * number, 0]) for number in range(3)]
    assert 0 < brightness[0] < brightness[1] < brightness[2] < 200
    rows, columns = motion_square(frames)
    assert picture[rows, columns].shape[0] == picture[rows, columns].shape[1] < 200
    assert rows.start < 100 < 120 < rows.stop
    assert columns.start < 110 < 190 < columns.stop
