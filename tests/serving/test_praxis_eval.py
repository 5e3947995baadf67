"""The adapter for praxis-eval: histories and queues by episode, clipped actions, a policy or a server behind it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from oat.data.episodes import STATE
from oat.errors import InvalidObservation, UndecodableTokens
from oat.interfaces import Observation
from oat.policies.choosing import Coherent
from oat.policies.decoding import TokenDecoding
from oat.policies.sampling import Noise
from oat.serving.client import PolicyClient
from oat.serving.praxis_eval import LocalChunks, PraxisPolicy, Rests, Seen, ServerChunks
from tests.policies.small import observe, policy_of
from tests.serving.running import serving

IMAGE = "observation.image"


@dataclass(frozen=True)
class Spec:
    """The part of praxis-eval's ActionSpec that matters here."""

    minimum: float | None
    maximum: float | None


class Counting:
    """A source whose action t of chunk c is 10 c + t, in both dimensions; it keeps what it saw."""

    seen = Seen(2, {STATE: (3,), IMAGE: (4, 4, 3)}, ("push", "pull"))

    def __init__(self) -> None:
        self.asked: list[tuple[Observation, list[tuple[int, int]]]] = []
        self.rests: list[Rests] = []

    def chunks(self, observation: Observation, noise: Sequence[tuple[int, int]], rests: Rests) -> np.ndarray:
        self.asked.append((observation, list(noise)))
        self.rests.append(rests)
        steps = np.arange(8.0)[None, :, None]
        starts = np.array([10.0 * number for _, number in noise])[:, None, None]
        return np.broadcast_to(starts + steps, (len(noise), 8, 2))


def seen(number: float, task: str = "push") -> dict[str, Any]:
    image = np.full((3, 8, 8), number / 255, np.float32)
    return {"task": task, STATE: np.full(3, number), "observation.images.corner2": image}


def test_every_episode_has_its_own_queue_and_history() -> None:
    source = Counting()
    policy = PraxisPolicy(source, execute=2)
    assert policy.act([seen(1)], episode_ids=["a"]).tolist() == [[0, 0]]
    # b begins while a is in the middle of its chunk.
    assert policy.act([seen(2), seen(7, "pull")], episode_ids=["a", "b"])[:, 0].tolist() == [1, 0]
    assert policy.act([seen(8, "pull"), seen(3)], episode_ids=["b", "a"])[:, 0].tolist() == [1, 10]
    observation, noise = source.asked[-1]
    assert observation.tasks == ("push",)
    np.testing.assert_array_equal(observation.values[STATE][0, :, 0], [2, 3])
    assert observation.values[IMAGE].shape == (1, 2, 4, 4, 3)
    assert observation.values[IMAGE].dtype == np.uint8
    assert observation.values[IMAGE][0, :, 0, 0, 0].tolist() == [2, 3]
    assert noise[0][1] == 1
    (rest,) = source.rests[-1]  # a's own, though b's chunk came in between
    assert rest is not None
    assert rest[:, 0].tolist() == [2, 3, 4, 5, 6, 7]
    assert source.rests[1] == [None]
    np.testing.assert_array_equal(source.asked[1][0].values[STATE][0, :, 0], [7, 7])  # the first frame, repeated


def test_reset_forgets_the_episodes_that_it_names() -> None:
    source = Counting()
    policy = PraxisPolicy(source, execute=4)
    policy.act([seen(1), seen(2)], episode_ids=["a", "b"])
    seeds = [seed for seed, _ in source.asked[-1][1]]
    policy.reset(["a"])
    assert policy.act([seen(3), seen(4)], episode_ids=["a", "b"])[:, 0].tolist() == [0, 1]
    ((seed, number),) = source.asked[-1][1]
    assert number == 0
    assert seed not in seeds  # other random numbers than in the episode before


def test_without_ids_a_row_is_an_episode_until_all_are_reset() -> None:
    policy = PraxisPolicy(Counting(), execute=4)
    assert policy.act([seen(1), seen(2)])[:, 0].tolist() == [0, 0]
    assert policy.act([seen(1), seen(2)])[:, 0].tolist() == [1, 1]
    policy.reset()
    assert policy.act([seen(1), seen(2)])[:, 0].tolist() == [0, 0]


def test_actions_are_clipped_to_the_range_that_is_asked_for() -> None:
    policy = PraxisPolicy(Counting(), execute=8)
    actions = [policy.act([seen(1)], action_spec=Spec(-1.0, 1.0)) for _ in range(3)]
    assert [float(each[0, 0]) for each in actions] == [0, 1, 1]
    assert all(each.dtype == np.float32 for each in actions)
    assert policy.act([seen(1)], action_spec=Spec(None, None))[0, 0] == 3


def test_observations_may_be_renamed_and_must_be_there() -> None:
    policy = PraxisPolicy(Counting(), names={"agent_pos": STATE})
    renamed = {"task": "push", "agent_pos": np.ones(3), "front": np.zeros((3, 8, 8), np.uint8)}
    assert policy.act([renamed]).shape == (1, 2)
    with pytest.raises(InvalidObservation, match=r"lacks observation\.state"):
        PraxisPolicy(Counting()).act([renamed])


def test_a_policy_acts_as_it_predicts() -> None:
    predictor = policy_of("oat")
    given = observe(2)
    rows = [{"task": given.tasks[row], STATE: given.values[STATE][row, 0]} for row in range(2)]
    policy = PraxisPolicy(LocalChunks(predictor), execute=3)
    acted = np.stack([policy.act(rows) for _ in range(3)], 1)
    same = {STATE: np.stack([given.values[STATE][:, 0]] * 2, 1)}
    noise = Noise.of([episode.seed for episode in policy._episodes.values()], [0, 0])
    expected = predictor.predict_chunk(Observation(same, given.tasks), noise=noise).actions[:, :3].numpy()
    np.testing.assert_allclose(acted, expected, atol=1e-6)


def test_a_server_may_be_behind_it() -> None:
    predictor = policy_of("oat")
    given = observe(2)
    rows = [{"task": given.tasks[row], STATE: given.values[STATE][row, 0]} for row in range(2)]
    with serving(predictor) as server, PolicyClient(f"ws://127.0.0.1:{server.port}") as client:
        remote = PraxisPolicy(ServerChunks(client), seed=4).act(rows)
    local = PraxisPolicy(LocalChunks(predictor), seed=4).act(rows)
    np.testing.assert_allclose(remote, local, atol=1e-5)


def test_chunks_go_on_from_those_of_their_own_episode() -> None:
    """In this process and behind a server alike, for episodes that share one connection."""
    predictor = policy_of("oat")
    decoding = TokenDecoding(samples=4, choose=Coherent(), executed=2)
    given = observe(2)
    rows = [{"task": given.tasks[row], STATE: given.values[STATE][row, 0]} for row in range(2)]
    with serving(predictor, decoding, execute=2) as server, PolicyClient(f"ws://127.0.0.1:{server.port}") as client:
        remote = PraxisPolicy(ServerChunks(client), execute=2, seed=4)
        local = PraxisPolicy(LocalChunks(predictor, decoding), execute=2, seed=4)
        for _ in range(5):
            np.testing.assert_allclose(remote.act(rows), local.act(rows), atol=1e-5)


def test_tokens_that_do_not_decode_are_an_error_and_not_an_action() -> None:
    rows = [{"task": "push", STATE: np.ones(4)}] * 4
    with pytest.raises(UndecodableTokens, match="praxis-eval"):
        PraxisPolicy(LocalChunks(policy_of("fast"))).act(rows)
