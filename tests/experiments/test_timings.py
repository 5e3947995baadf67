"""What table-latency times, and what it says of it."""

import numpy as np

from oat.data.chunks import WindowConfig, Windows
from oat.experiments import paper
from oat.experiments.latency import median_interval
from oat.experiments.methods import FAST
from oat.experiments.timings import smooth_episodes, untrained


def test_an_untrained_fast_policy_takes_as_many_tokens_as_its_chunks_have() -> None:
    episodes = smooth_episodes(paper.ACTION_DIMS["robocasa"])
    policy, tokens = untrained(FAST, Windows(episodes, WindowConfig(32, 1)), "tiny")
    assert tokens is not None
    assert 20 < tokens < 384
    for seed in range(3):
        chunk = policy.predict_chunk(policy.random_observation(1, seed))
        assert chunk.steps.tolist() == [round(tokens) + 1]  # and one to end


def test_the_interval_holds_the_median_19_times_of_20() -> None:
    random = np.random.default_rng(0)
    for count in (10, 30, 100):
        found = [median_interval(random.normal(size=count).tolist()) for _ in range(2000)]
        assert 0.93 < np.mean([each.low <= 0 <= each.high for each in found]) < 0.99
