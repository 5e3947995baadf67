"""Windows equal what a plain loop over time steps gives; streams resume, split and mix as promised."""

import multiprocessing
import pickle
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oat.data.chunks import Batch, WindowConfig, Windows
from oat.data.episodes import STATE, Episodes, open_dataset
from oat.data.mixture import Mixture
from oat.data.splits import split_episodes
from oat.data.stream import stream
from oat.errors import InvalidOption, UnknownName


def make_set(lengths: list[int], dim: int = 3, tasks: list[str] | None = None, offset: float = 0.0) -> Episodes:
    """Make episodes of these lengths whose numbers count up from `offset`, so that every frame can be told apart."""
    frames = sum(lengths)
    actions = offset + np.arange(frames * dim, dtype=np.float32).reshape(frames, dim)
    states = np.arange(frames * 2, dtype=np.float32).reshape(frames, 2)
    return Episodes.from_arrays(actions, lengths, tasks, observations={STATE: states})


def windows_by_loop(episodes: Episodes, config: WindowConfig) -> list[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """Return for every frame its chunk, valid mask, observation history and task, by the definition."""
    windows = []
    for e in range(len(episodes)):
        start = int(episodes.starts[e])
        end = int(episodes.ends[e])
        for t in range(start, end):
            chunk = [episodes.actions[min(t + k, end - 1)] for k in range(config.action_horizon)]
            valid = [t + k < end for k in range(config.action_horizon)]
            history = [max(t - k, start) for k in reversed(range(config.obs_horizon))]
            states = episodes.observation(STATE)[np.array(history)]
            windows.append((np.array(chunk), np.array(valid), states, int(episodes.task_ids[e])))
    return windows


lengths_strategy = st.lists(st.integers(1, 12), min_size=1, max_size=6)


@given(lengths=lengths_strategy, horizon=st.integers(1, 15), history=st.integers(1, 4), data=st.data())
def test_windows_equal_the_loop(lengths: list[int], horizon: int, history: int, data: st.DataObject) -> None:
    episodes = make_set(lengths, tasks=[f"t{e % 2}" for e in range(len(lengths))])
    chosen = data.draw(st.lists(st.integers(0, len(lengths) - 1), min_size=1, max_size=6, unique=True))
    subset = episodes.select(chosen)
    config = WindowConfig(horizon, history, (STATE,))
    windows = Windows(subset, config)
    expected = windows_by_loop(subset, config)
    assert len(windows) == len(expected)
    order = np.random.default_rng(0).permutation(len(expected))
    batch = windows[order]
    for row, number in enumerate(order):
        chunk, valid, states, task = expected[number]
        np.testing.assert_array_equal(batch.actions[row], chunk)
        np.testing.assert_array_equal(batch.valid_mask[row], valid)
        np.testing.assert_array_equal(batch.observations[STATE][row], states)
        assert batch.task_ids[row] == task


@pytest.mark.parametrize("layout", ["sliced", "Fortran", "reversed", "column"])
def test_actions_of_any_memory_layout_are_read_right(layout: str) -> None:
    base = np.arange(80, dtype=np.float32).reshape(10, 8)
    layouts: dict[str, np.ndarray] = {
        "sliced": base[:, 2:5],
        "Fortran": np.asfortranarray(base),
        "reversed": base[::-1],
        "column": np.arange(10, dtype=np.float32)[:, None],
    }
    actions = layouts[layout]
    episodes = Episodes.from_arrays(actions, [10])
    np.testing.assert_array_equal(Windows(episodes, WindowConfig(3, 1))[np.array([4])].actions[0], actions[4:7])


def _sum_in_worker(windows: Windows) -> float:
    """Return the sum of all windows' actions; at module level, so that another process finds it."""
    return float(windows[np.arange(len(windows))].actions.sum())


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_windows_travel_to_workers_without_the_data(method: str, tmp_path: Path) -> None:
    actions = np.random.default_rng(0).normal(size=(50_000, 8)).astype(np.float32)
    np.savez(tmp_path / "set.npz", actions=actions, state=actions, episode_ends=[25_000, 50_000])
    windows = Windows(open_dataset(tmp_path / "set.npz"), WindowConfig(8, 1, (STATE,)))
    expected = _sum_in_worker(windows)
    assert len(pickle.dumps(windows)) < 10_000
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(_sum_in_worker, [windows, windows]) == [expected, expected]


def take_batches(batches: int, source: Windows | Mixture, size: int, **options: int) -> list[Batch]:
    """Return the first batches of a stream."""
    return list(islice(stream(source, size, **options), batches))


def test_an_epoch_visits_every_window_once() -> None:
    windows = Windows(make_set([5, 9, 4]), WindowConfig(2, 1))
    for epoch in range(3):
        seen = [b.actions[:, 0, 0] for b in take_batches(9, windows, 2, seed=0, start=9 * epoch)]
        assert sorted(np.concatenate(seen)) == sorted(windows[np.arange(18)].actions[:, 0, 0])


def test_streams_resume_at_any_step() -> None:
    windows = Windows(make_set([50, 70]), WindowConfig(4, 2, (STATE,)))
    whole = take_batches(60, windows, 8, seed=3)
    for start in (1, 17, 40):
        for expected, found in zip(
            whole[start:], take_batches(60 - start, windows, 8, seed=3, start=start), strict=True
        ):
            np.testing.assert_array_equal(expected.actions, found.actions)
            np.testing.assert_array_equal(expected.observations[STATE], found.observations[STATE])


def test_seeds_and_epochs_differ() -> None:
    windows = Windows(make_set([64]), WindowConfig(1, 1))
    first = take_batches(1, windows, 64, seed=0)[0]
    other = take_batches(1, windows, 64, seed=1)[0]
    epoch = take_batches(1, windows, 64, seed=0, start=1)[0]
    assert not np.array_equal(first.actions, other.actions)
    assert not np.array_equal(first.actions, epoch.actions)


def test_processes_share_the_batches_of_one() -> None:
    windows = Windows(make_set([50, 70]), WindowConfig(4, 1))
    whole = take_batches(20, windows, 12, seed=0)
    parts = [take_batches(20, windows, 12, seed=0, rank=rank, world_size=3) for rank in range(3)]
    for step, batch in enumerate(whole):
        joined = np.concatenate([part[step].actions for part in parts])
        np.testing.assert_array_equal(batch.actions, joined)
    with pytest.raises(InvalidOption, match="12 cannot be shared by 5"):
        take_batches(1, windows, 12, seed=0, rank=0, world_size=5)


@settings(max_examples=30)
@given(weights=st.lists(st.floats(0.05, 1.0), min_size=1, max_size=4), start=st.integers(0, 10**9))
def test_mixtures_keep_their_proportions_and_visit_evenly(weights: list[float], start: int) -> None:
    sources = [Windows(make_set([10 + 5 * i], offset=1000.0 * i), WindowConfig(1, 1)) for i in range(len(weights))]
    mixture = Mixture(sources, weights)
    positions = start + np.arange(2000)
    windows = mixture.shuffle(positions, 0)
    owner = (mixture[windows].actions[:, 0, 0] // 1000).astype(int)
    for number, weight in enumerate(mixture.weights):
        assert abs((owner == number).mean() - weight) < 0.01
        counts = np.bincount(windows[owner == number] - windows[owner == number].min(), minlength=len(sources[number]))
        assert np.ptp(counts) <= 2  # each of its windows as often as the others, up to the epochs cut at both ends


def test_mixtures_resume_and_join_tasks() -> None:
    human = make_set([20, 20], tasks=["close drawer", "press button"])
    machine = make_set([60], tasks=["press button"], offset=500.0)
    config = WindowConfig(2, 1, (STATE,))
    mixture = Mixture([Windows(human, config), Windows(machine, config)], [50, 150])
    assert mixture.tasks == ("close drawer", "press button")
    whole = take_batches(30, mixture, 8, seed=0)
    for expected, found in zip(whole[13:], take_batches(17, mixture, 8, seed=0, start=13), strict=True):
        np.testing.assert_array_equal(expected.actions, found.actions)
        np.testing.assert_array_equal(expected.task_ids, found.task_ids)
    for batch in whole:
        from_machine = batch.actions[:, 0, 0] >= 500
        assert from_machine.sum() == 6  # exactly three quarters of every batch
        assert (batch.task_ids[from_machine] == 1).all()


def test_mixtures_refuse_what_does_not_fit() -> None:
    one = make_set([5], dim=3)
    config = WindowConfig(2, 1)
    with pytest.raises(InvalidOption, match=r"4-D actions.*3-D"):
        Mixture([Windows(one, config), Windows(make_set([5], dim=4), config)], [1, 1])
    for weight in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidOption, match="positive weight"):
            Mixture([Windows(one, config)], [weight])
    with pytest.raises(InvalidOption, match="100,000"):
        Mixture([Windows(one, config), Windows(one, config)], [1, 1e7])
    with pytest.raises(InvalidOption, match="equal window settings"):
        Mixture([Windows(one, config), Windows(one, WindowConfig(3, 1))], [1, 1])


def test_bad_settings_are_refused() -> None:
    with pytest.raises(InvalidOption, match="at least 1"):
        WindowConfig(0, 1)
    with pytest.raises(InvalidOption, match="no episodes"):
        Windows(make_set([5]).select([]), WindowConfig())
    windows = Windows(make_set([5]), WindowConfig(2, 1))
    for wrong in ([-1], [5]):
        with pytest.raises(InvalidOption, match="must be 0…4"):
            windows[np.array(wrong)]
    for options in ({"rank": 1}, {"start": -1}):
        with pytest.raises(InvalidOption):
            take_batches(1, windows, 1, seed=0, **options)
    with pytest.raises(InvalidOption, match="a batch of 0"):
        take_batches(1, windows, 0, seed=0)
    with pytest.raises(UnknownName, match=STATE):
        Windows(make_set([5]), WindowConfig(observations=("observation.stat",)))


@given(counts=st.lists(st.integers(1, 30), min_size=1, max_size=4), share=st.floats(0.0, 0.5), seed=st.integers(0, 99))
def test_splits_are_stratified_and_reproducible(counts: list[int], share: float, seed: int) -> None:
    tasks = [f"task {t}" for t, count in enumerate(counts) for _ in range(count)]
    episodes = make_set([1] * len(tasks), tasks=tasks)
    train, validation = split_episodes(episodes, share, seed)
    assert sorted([*train, *validation]) == list(range(len(tasks)))
    assert len(validation) == min(max(round(len(tasks) * share), 1 if share else 0), len(tasks) - 1)
    for task, count in enumerate(counts):
        held_out = int((episodes.task_ids[validation] == task).sum())
        if count > 1:
            assert held_out < count  # something is left to train on
            assert abs(held_out - count * share) < 1.5
    again = split_episodes(episodes, share, seed)
    assert np.array_equal(train, again[0])
    assert np.array_equal(validation, again[1])


def test_every_task_of_a_balanced_set_is_held_out_alike() -> None:
    episodes = make_set([1] * 200, tasks=[f"task {t}" for t in range(4) for _ in range(50)])
    _, validation = split_episodes(episodes, 0.1, seed=3)
    assert np.bincount(episodes.task_ids[validation]).tolist() == [5, 5, 5, 5]


def test_sets_in_which_every_episode_has_its_own_task_are_split() -> None:
    episodes = make_set([1] * 20_000, tasks=[f"instruction {e}" for e in range(20_000)])
    train, validation = split_episodes(episodes, 0.1)
    assert (len(train), len(validation)) == (18_000, 2_000)


def test_splits_depend_on_the_seed() -> None:
    episodes = make_set([1] * 50)
    assert not np.array_equal(split_episodes(episodes, 0.2, 0)[1], split_episodes(episodes, 0.2, 1)[1])
    with pytest.raises(InvalidOption, match=r"in \[0, 1\)"):
        split_episodes(episodes, 1.0)
