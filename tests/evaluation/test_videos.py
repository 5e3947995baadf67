"""Videos show the episodes that were asked for, with the path that the policy predicted; others are not rendered."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from oat.data.video import VideoDecoder
from oat.errors import InvalidOption
from oat.evaluation.protocol import find_protocol
from oat.evaluation.records import EpisodeRecord
from oat.evaluation.rollout import Rollout
from oat.evaluation.videos import Film
from oat.evaluation.workers.worker import Act, EnvironmentWorker, Reset, Segment, make_environment
from oat.interfaces import ExpertConfig, Filmable
from oat.sims.metaworld import MetaWorld, MetaWorldEnv
from tests.evaluation.point import DIM, make_point
from tests.evaluation.test_rollout import PROTOCOL, make_policy, open_pool, plan, without_times
from tests.tokenizers.fitted import HORIZON

VISIBLE = replace(PROTOCOL, simulator="visible point")


def frames(video: bytes, folder: Path) -> np.ndarray:
    """All frames of a video that plays at 25 per second."""
    (folder / "film.mp4").write_bytes(video)
    decoder = VideoDecoder(folder / "film.mp4")
    assert float(decoder._stream.average_rate) == 25
    return decoder.read(np.arange(decoder._stream.frames) / 25, 25)


def test_only_the_episodes_asked_for_are_filmed(tmp_path: Path) -> None:
    records: dict[int, EpisodeRecord] = {}
    videos: dict[int, bytes | None] = {}

    def finish(record: EpisodeRecord, video: bytes | None) -> None:
        records[record.key.condition], videos[record.key.condition] = record, video

    policy, pool = make_policy(), open_pool(protocol=VISIBLE)
    Rollout(policy, pool, 2, finish, VISIBLE).run(plan(tmp_path, [11, 12, 60], film=[11, 60]))
    assert {c: video is not None for c, video in videos.items()} == {11: True, 12: False, 60: True}
    rendered = {file.name: file.read_text().split() for file in tmp_path.glob("rendered-*")}
    assert rendered == {
        "rendered-11": [str(step) for step in (0, 2, 4, 6, 8, 10, 11)],  # half of 50 per second, and the last
        "rendered-60": [str(step) for step in range(0, 51, 2)],
    }
    filmed = dict(records)
    Rollout(policy, pool, 2, finish, VISIBLE).run(plan(tmp_path, [11, 12, 60]))
    assert without_times(filmed) == without_times(records)
    assert not any(videos.values())
    pool.close()


def test_a_video_shows_time_passing_and_the_predicted_path(tmp_path: Path) -> None:
    worker = EnvironmentWorker(VISIBLE, make_point)
    worker.answer(Reset(str(tmp_path), 20, film=True))
    chunk = np.zeros((HORIZON, DIM), np.float32)
    for message in (Act(chunk), Act(None), Act(chunk)):
        answer = worker.answer(message)
    assert isinstance(answer, Segment)
    assert answer.success
    assert answer.video is not None
    shown = frames(answer.video, tmp_path).astype(int)
    assert len(shown) == 11
    brightness = shown[:, 10, 10].mean(-1)  # away from the path
    np.testing.assert_allclose(brightness, 4 * np.arange(0, 21, 2), atol=6)
    middle = shown[:, 160]  # the path runs from left to right; the first half will be executed
    left, right = middle[:, 80], middle[:, 240]
    drawn = [0, 1, 2, 3, 8, 9, 10]  # not while it holds still
    assert (left[drawn, 0] - left[drawn, 2] > 120).all()  # yellow
    assert (right[drawn, 2] - right[drawn, 0] > 60).all()  # blue
    np.testing.assert_allclose(middle[4:8, 80], shown[4:8, 10, 10], atol=6)


def test_what_cannot_be_filmed_says_so(tmp_path: Path) -> None:
    answer = EnvironmentWorker(PROTOCOL, make_point).answer(Reset(str(tmp_path), 5, film=True))
    assert isinstance(answer, InvalidOption)
    assert "point cannot be filmed: leave out --videos" in str(answer)


def test_metaworld_is_filmed_as_it_is(tmp_path: Path) -> None:
    """The film does not change the episode, and the hand ends where the path that was drawn ends."""
    actions = MetaWorld().expert("drawer-open", ExpertConfig()).demonstrate(0).actions[:32]
    ends = []
    for film in (False, True):
        worker = EnvironmentWorker(replace(find_protocol("metaworld"), max_steps=32, execute=32), make_environment)
        worker.answer(Reset("drawer-open", 0, film))
        env = worker.environments["drawer-open"]
        assert isinstance(env, MetaWorldEnv)
        path = env.foresee(actions)
        answer = worker.answer(Act(actions))
        assert isinstance(answer, Segment)
        assert (answer.video is not None) == film
        ends.append(answer.history["observation.state"])
        reached = env.foresee(actions)[0]
        assert path.shape == (33, 2)
        assert np.linalg.norm(path[-1] - path[0]) > 0.08
        assert np.linalg.norm(path[-1] - reached) < 0.3 * np.linalg.norm(reached - path[0])  # it lags a little
    np.testing.assert_array_equal(ends[0], ends[1])


def test_a_film_needs_only_what_the_interface_says() -> None:
    assert isinstance(MetaWorldEnv("reach"), Filmable)
    env = make_point(VISIBLE, "/nowhere")
    assert isinstance(env, Filmable)
    Film(env)
