"""The policy waits for company where that pays, and never for episodes that are not there."""

from oat.evaluation.batch_size import BatchSizer


def paced(prediction: float, segment: float, batch: int = 16, processes: int = 2) -> BatchSizer:
    pace = BatchSizer(batch, processes)
    for _ in range(50):
        pace.saw_prediction(prediction)
        pace.saw_segment(segment)
    return pace


def test_before_anything_is_known_every_process_has_two_episodes() -> None:
    pace = BatchSizer(16, 3)
    assert (pace.worthwhile, pace.episodes) == (1, 6)
    assert pace.should_predict(1, 6)


def test_slow_simulators_do_not_wait() -> None:
    pace = paced(prediction=0.04, segment=0.3)
    assert (pace.worthwhile, pace.episodes) == (1, 4)


def test_fast_simulators_wait_until_the_policy_costs_a_third() -> None:
    pace = paced(prediction=0.04, segment=0.01)
    assert (pace.worthwhile, pace.episodes) == (12, 24)
    assert not pace.should_predict(11, 24)
    assert pace.should_predict(12, 24)
    assert paced(prediction=0.4, segment=0.01).worthwhile == 16  # never more than a batch


def test_many_processes_are_kept_up_with() -> None:
    assert paced(prediction=0.04, segment=0.3, batch=64, processes=128).worthwhile == 18


def test_of_the_last_episodes_half_are_enough() -> None:
    pace = paced(prediction=0.04, segment=0.01)
    assert not pace.should_predict(0, 1)
    assert pace.should_predict(1, 1)
    assert pace.should_predict(5, 10)
    assert not pace.should_predict(4, 10)


def test_a_slow_policy_waits_for_all_of_the_last_episodes() -> None:
    """Four more segments of two processes take less time than a second batch."""
    pace = paced(prediction=0.4, segment=0.01)
    assert not pace.should_predict(5, 10)
    assert pace.should_predict(10, 10)
    assert pace.should_predict(16, 30)  # a whole batch never waits


def test_measures_follow_a_change() -> None:
    pace = paced(prediction=0.04, segment=0.3)
    for _ in range(50):
        pace.saw_segment(0.01)
    assert pace.worthwhile > 8
