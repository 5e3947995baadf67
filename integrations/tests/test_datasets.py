"""Data sets go both ways: LeRobot reads what we write, and we read what LeRobot writes."""

from pathlib import Path

import numpy as np
import pytest
from conftest import LENGTH, make_episode
from lerobot.datasets.lerobot_dataset import LeRobotDataset

from oat.data.episodes import open_dataset
from oat.data.lerobot import LeRobotWriter
from oat.sims.metaworld_lerobot import IMAGE

STATE = "observation.state"


def test_lerobot_reads_what_we_write(demos: Path) -> None:
    read = LeRobotDataset("oat/demos", root=demos)
    assert (read.num_episodes, read.num_frames, read.fps) == (6, 6 * LENGTH, 80)
    actions, observations = make_episode(4)
    frame = read[4 * LENGTH + 5]
    np.testing.assert_array_equal(frame["action"], actions[5])
    np.testing.assert_array_equal(frame[STATE], observations[STATE][5])
    pixels = (255 * frame[IMAGE]).round().byte().permute(1, 2, 0)
    np.testing.assert_array_equal(pixels, observations[IMAGE][5])
    assert frame["task"] == open_dataset(demos).task(4)
    np.testing.assert_allclose(read.meta.stats["action"]["max"], open_dataset(demos).actions.max(0), rtol=1e-6)


def test_lerobot_reads_the_videos_that_we_write(tmp_path: Path) -> None:
    shade = np.linspace(40, 200, LENGTH).astype(np.uint8)
    images = np.broadcast_to(shade[:, None, None, None], (LENGTH, 64, 64, 3)).copy()
    with LeRobotWriter(tmp_path / "set", 10) as writer:
        for number in range(2):
            writer.add_episode("fade", make_episode(number)[0], {"observation.images.top": images})
    read = LeRobotDataset("oat/set", root=tmp_path / "set", video_backend="pyav")
    seen = [float(255 * read[LENGTH + step]["observation.images.top"].mean()) for step in range(LENGTH)]
    np.testing.assert_allclose(seen, shade, atol=4)  # video is lossy


@pytest.mark.parametrize("videos", [False, True])
def test_we_read_what_lerobot_writes(videos: bool, tmp_path: Path) -> None:
    camera = "observation.images.top"
    features = {
        "action": {"dtype": "float32", "shape": (4,), "names": ["x", "y", "z", "gripper"]},
        STATE: {"dtype": "float32", "shape": (4,), "names": None},
        camera: {
            "dtype": "video" if videos else "image",
            "shape": (64, 64, 3),
            "names": ["height", "width", "channel"],
        },
    }
    written = LeRobotDataset.create("oat/theirs", 20, features, root=tmp_path / "theirs", use_videos=videos)
    for number in range(3):
        actions, observations = make_episode(number)
        for step in range(LENGTH):
            image = np.full((64, 64, 3), 20 * step, np.uint8)
            row = {"action": actions[step], STATE: observations[STATE][step], camera: image}
            written.add_frame({**row, "task": f"task {number % 2}"})
        written.save_episode()
    written.finalize()
    read = open_dataset(tmp_path / "theirs")
    assert len(read) == 3
    assert [read.task(number) for number in range(3)] == ["task 0", "task 1", "task 0"]
    np.testing.assert_array_equal(read.actions[LENGTH : 2 * LENGTH], make_episode(1)[0])
    np.testing.assert_array_equal(read.observation(STATE)[np.arange(LENGTH)], make_episode(0)[1][STATE])
    images = read.observation(camera)[np.arange(LENGTH)]
    assert images.shape == (LENGTH, 64, 64, 3)
    np.testing.assert_allclose(images.mean((1, 2, 3)), 20 * np.arange(LENGTH), atol=6 if videos else 0)
