"""The client: chunks over a socket, receding-horizon execution, and a server that goes away and comes back."""

import socket
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from oat.data.episodes import STATE
from oat.errors import PolicyServerError, UndecodableTokens
from oat.interfaces import Observation
from oat.policies import Noise, TokenDecoding
from oat.policies.choosing import Coherent, Previous
from oat.serving.client import PolicyClient, RemotePolicy
from oat.serving.server import PolicyServer
from tests.policies.small import STATE_DIM, autoregressive, observe
from tests.serving.running import serving


def _url(server: PolicyServer) -> str:
    return f"ws://127.0.0.1:{server.port}"


def _frame(number: int) -> dict[str, np.ndarray]:
    return {STATE: np.random.default_rng(number).normal(size=STATE_DIM).astype(np.float32)}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def test_it_gets_the_policys_chunks() -> None:
    policy = autoregressive("oat")
    with serving(policy) as server, PolicyClient(_url(server)) as client:
        assert client.metadata["action_dim"] == 3
        observation = observe(1)
        reply = client.infer({STATE: observation.values[STATE][0]}, "push", noise=(7, 3))
        expected = policy.predict_chunk(observation, noise=Noise.of([7], [3])).actions[0]
        np.testing.assert_array_equal(reply.actions, expected)
        assert 0 < reply.infer_ms < reply.total_ms
        assert reply.num_tokens == 8
        drawn = [client.infer(_frame(0), "push").actions for _ in range(2)]
        client.reset()
        drawn.append(client.infer(_frame(0), "push").actions)
        assert len({actions.tobytes() for actions in drawn}) == 3


def test_it_chooses_the_number_of_tokens() -> None:
    policy = autoregressive("oat")
    observation = observe(1)
    frames = {STATE: observation.values[STATE][0]}
    with serving(policy) as server, PolicyClient(_url(server), num_tokens=2) as client:
        reply = client.infer(frames, "push", noise=(7, 3))
        expected = policy.predict_chunk(observation, TokenDecoding(num_tokens=2), Noise.of([7], [3])).actions[0]
        np.testing.assert_array_equal(reply.actions, expected)
        assert reply.num_tokens == 2


def test_a_server_that_does_not_let_it_choose_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of others, which do not know what the request says."""
    monkeypatch.setattr("oat.serving.requests._num_tokens", lambda given: None)
    with (
        serving(autoregressive("oat")) as server,
        PolicyClient(_url(server), num_tokens=2) as client,
        pytest.raises(PolicyServerError, match="does not let clients choose 2 tokens"),
    ):
        client.infer(_frame(0), "push")


def test_tokens_that_do_not_decode_are_told_from_other_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, real = autoregressive("fast"), torch.ones(1, dtype=torch.bool)
    with serving(policy) as server, PolicyClient(_url(server)) as client:
        chunk = policy.predict_chunk(observe(1))
        for valid in (~real, real):  # the next request is answered on a new connection
            monkeypatch.setattr(policy, "predict_chunk", lambda *_, v=valid, **__: replace(chunk, valid=v))
            if valid:
                assert client.infer(_frame(0), "push").actions.shape == (16, 3)
            else:
                with pytest.raises(UndecodableTokens, match="do not decode to actions this time"):
                    client.infer(_frame(0), "push")


def test_receding_horizon_is_the_same_as_in_process() -> None:
    policy, steps, execute = autoregressive("oat"), 20, 6
    with serving(policy) as server, PolicyClient(_url(server)) as client:
        remote = RemotePolicy(client, "push", execute, seed=9)
        found = np.stack([remote.act(_frame(step)) for step in range(steps)])
        remote.reset(9)
        np.testing.assert_array_equal(remote.act(_frame(0)), found[0])
    expected = []
    for chunk, first in enumerate(range(0, steps, execute)):
        frames = np.stack([_frame(max(first - 1, 0))[STATE], _frame(first)[STATE]])
        seen = Observation({STATE: frames[None]}, ("push",))
        expected += list(policy.predict_chunk(seen, noise=Noise.of([9], [chunk])).actions[0, :execute])
    np.testing.assert_array_equal(found, np.stack(expected)[:steps])


def test_an_episode_goes_on_from_its_own_chunks() -> None:
    """A rule follows the rest of the episode's last chunk; the next episode has none yet, though nobody resets."""
    policy, execute = autoregressive("oat"), 6
    decoding = TokenDecoding(samples=4, choose=Coherent(), executed=execute)
    seen = Observation({STATE: np.stack([_frame(0)[STATE]] * 2)[None]}, ("push",))

    def chunk(seed: int, number: int, rest: np.ndarray | None) -> np.ndarray:
        noise = Noise.of([seed], [number])
        previous = Previous.of([rest], policy.space.action_dim)
        return policy.predict_chunk(seen, decoding, noise, previous=previous).actions[0].numpy()

    with serving(policy, decoding, execute=execute) as server, PolicyClient(_url(server)) as client:
        remote = RemotePolicy(client, "push", execute)
        for seed in (9, 10):
            remote.reset(seed)
            found = np.stack([remote.act(_frame(0)) for _ in range(2 * execute)])
            first = chunk(seed, 0, None)
            second = chunk(seed, 1, first[execute:])
            np.testing.assert_allclose(found, np.concatenate([first[:execute], second[:execute]]), atol=1e-6)


def test_it_reconnects_to_a_server_that_comes_back() -> None:
    policy, port = autoregressive("oat"), _free_port()
    with serving(policy, port=port):
        client = PolicyClient(f"ws://127.0.0.1:{port}")
        first = client.infer(_frame(0), "push", (1, 0)).actions
    again: list[np.ndarray] = []
    asking = threading.Thread(target=lambda: again.append(client.infer(_frame(0), "push", (1, 0)).actions))
    asking.start()
    time.sleep(0.5)
    assert not again
    with serving(policy, port=port):
        asking.join(30)
        np.testing.assert_array_equal(again[0], first)
        client.close()


def test_it_waits_for_a_server_that_is_not_there_yet_but_not_for_ever() -> None:
    begin = time.monotonic()
    with pytest.raises(PolicyServerError, match="cannot be reached"):
        PolicyClient(f"ws://127.0.0.1:{_free_port()}", patience=0.5)
    assert 0.5 <= time.monotonic() - begin < 5


def test_a_silent_server_is_given_up() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, pytest.raises(PolicyServerError, match="cannot be reached"):
        PolicyClient(f"ws://127.0.0.1:{listener.getsockname()[1]}", timeout=0.2, patience=0.3)


def test_a_refusal_is_not_repeated(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret")
    with serving(autoregressive("oat"), api_key_file=tmp_path / "key") as server:
        with pytest.raises(PolicyServerError, match="API key"):
            PolicyClient(_url(server))
        with PolicyClient(_url(server), "secret") as client:
            with pytest.raises(PolicyServerError, match="must be"):
                client.infer({STATE: np.zeros(99, np.float32)}, "push")
            assert client.infer(_frame(0), "push").actions.shape == (16, 3)
    with pytest.raises(PolicyServerError, match="not an address"):
        PolicyClient("127.0.0.1:8000")
