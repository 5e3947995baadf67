"""The policy server: real sockets, the unmodified openpi client, several robots, and everything that goes wrong."""

import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from openpi_client.websocket_client_policy import WebsocketClientPolicy
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from benchmarks.hostile import hostile_messages
from oat.data.episodes import STATE
from oat.errors import InvalidOption, UnknownName
from oat.interfaces import Observation
from oat.policies import Noise, TokenDecoding
from oat.serving.config import ServeConfig
from oat.serving.messages import pack, unpack
from oat.serving.server import PolicyServer, load_servable
from tests.export.exported import exported
from tests.policies.small import STATE_DIM, autoregressive, policy_of
from tests.serving.running import serving

pytestmark = pytest.mark.filterwarnings("ignore:connect.. must be used as a context manager")


@pytest.fixture(scope="module")
def server() -> Iterator[PolicyServer]:
    with serving(autoregressive("oat"), client_timeout=2) as running:
        yield running


def _url(server: PolicyServer, path: str = "", scheme: str = "ws") -> str:
    return f"{scheme}://127.0.0.1:{server.port}{path}"


def _get(server: PolicyServer, path: str) -> str:
    with urllib.request.urlopen(_url(server, path, "http"), timeout=10) as response:
        return response.read().decode()


def _metric(server: PolicyServer, name: str) -> float:
    (value,) = re.findall(rf"^{re.escape(name)} (\S+)$", _get(server, "/metrics"), re.MULTILINE)
    return float(value)


def _state(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=STATE_DIM).astype(np.float32)


def _request(**more: object) -> bytes:
    return pack({STATE: _state(), "prompt": "push", **more})


def _in_process(server: PolicyServer, frames: np.ndarray, seed: int, chunk: int) -> np.ndarray:
    observation = Observation({STATE: frames[None]}, ("push",))
    return server.policy.predict_chunk(observation, noise=Noise.of([seed], [chunk])).actions[0].numpy()


def _receive(connection: ClientConnection, timeout: float | None = None) -> dict[str, Any]:
    message = connection.recv(timeout=timeout)
    assert isinstance(message, bytes), message
    return unpack(message)


def _greeted(connection: ClientConnection) -> ClientConnection:
    assert _receive(connection, timeout=10)["server"] == "oat"
    return connection


def test_the_openpi_client_gets_chunks(server: PolicyServer) -> None:
    client = WebsocketClientPolicy("127.0.0.1", server.port)
    metadata = client.get_server_metadata()
    assert metadata["observations"] == {STATE: {"shape": [STATE_DIM], "dtype": "float32"}}
    assert (metadata["action_horizon"], metadata["action_dim"], metadata["obs_horizon"]) == (16, 3, 2)
    assert metadata["tasks"] == ["push", "pull"]
    assert "repeated" in metadata["history"]
    first = client.infer({"observation/state": _state().astype(np.float64), "prompt": "push", "noise": [5, 0]})
    assert first["actions"].shape == (16, 3)
    assert first["num_tokens"] == 8
    assert first["server_timing"]["infer_ms"] > 0
    assert "prev_total_ms" not in first["server_timing"]
    repeated = np.stack([_state()] * 2)
    np.testing.assert_array_equal(first["actions"], _in_process(server, repeated, 5, 0))
    second = client.infer({"observation/state": _state(), "prompt": "push", "noise": [5, 1]})
    assert second["server_timing"]["prev_total_ms"] >= first["server_timing"]["infer_ms"]
    np.testing.assert_array_equal(second["actions"], _in_process(server, repeated, 5, 1))
    client._ws.close()


def test_a_history_is_used_as_it_comes(server: PolicyServer) -> None:
    """Frames of different requests are never joined: a single one is repeated, whatever came before."""
    frames = np.stack([_state(1), _state(2)])
    with _greeted(connect(_url(server))) as connection:
        for seen, expected in ((frames, frames), (frames[1], np.stack([frames[1]] * 2)), (frames, frames)):
            connection.send(pack({STATE: seen, "prompt": "push", "noise": [3, 0]}))
            np.testing.assert_array_equal(_receive(connection)["actions"], _in_process(server, expected, 3, 0))


def test_without_noise_of_its_own_a_client_gets_its_episodes(server: PolicyServer) -> None:
    """A new connection and a reset begin new ones; the chunks of one episode differ."""
    drawn = []
    for _ in range(2):
        with _greeted(connect(_url(server))) as connection:
            for message in (_request(), _request(), pack({"reset": True}), _request()):
                connection.send(message)
                reply = _receive(connection)
                drawn += [reply["actions"].tobytes()] if "actions" in reply else []
    assert len(set(drawn)) == 6


def test_robots_at_once_are_batched_and_get_their_own_chunks(server: PolicyServer) -> None:
    before, answered = _metric(server, "oat_batches_total"), _metric(server, 'oat_requests_total{outcome="answered"}')

    def drive(robot: int) -> int:
        with _greeted(connect(_url(server))) as connection:
            for chunk in range(10):
                frames = np.stack([_state(robot), _state(chunk)])
                connection.send(pack({STATE: frames, "prompt": "push", "noise": [robot, chunk]}))
                actions = _receive(connection, timeout=60)["actions"]
                np.testing.assert_allclose(actions, _in_process(server, frames, robot, chunk), atol=1e-4)
        return 10

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(drive, range(8))) == 80
    assert _metric(server, 'oat_requests_total{outcome="answered"}') == answered + 80
    assert _metric(server, "oat_batches_total") < before + 80


def test_a_request_may_choose_its_number_of_tokens(server: PolicyServer) -> None:
    """Robots that ask at the same time for other numbers are answered in batches of their own."""
    frames, counts = np.stack([_state(1), _state(2)]), (1, 3, 8, None)

    def ask(tokens: int | None) -> tuple[int, np.ndarray]:
        with _greeted(connect(_url(server))) as connection:
            chosen = {} if tokens is None else {"num_tokens": tokens}
            connection.send(pack({STATE: frames, "prompt": "push", "noise": [3, 0], **chosen}))
            reply = _receive(connection, timeout=60)
            return reply["num_tokens"], reply["actions"]

    with ThreadPoolExecutor(len(counts)) as pool:
        for tokens, (used, actions) in zip(counts, pool.map(ask, counts), strict=True):
            decoding = TokenDecoding(num_tokens=tokens)
            observation, noise = Observation({STATE: frames[None]}, ("push",)), Noise.of([3], [0])
            expected = server.policy.predict_chunk(observation, decoding, noise).actions[0].numpy()
            assert used == (tokens or 8)
            np.testing.assert_allclose(actions, expected, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "decoding", "tokens", "explanation"),
    [
        ("oat", None, 9, "must be 1…8, got 9"),
        ("oat", TokenDecoding(num_tokens=4), 5, "this server generates at most 4 tokens"),
        ("oat", None, 0, "at least 1"),
        ("oat", None, "2", "at least 1"),
        ("quest", None, 2, "no prefixes that decode"),
        ("diffusion", None, 2, "generates no tokens"),
        ("regression", None, 2, "generates no tokens"),
    ],
)
def test_a_number_of_tokens_that_cannot_be_is_refused(
    kind: str, decoding: TokenDecoding | None, tokens: object, explanation: str
) -> None:
    with serving(policy_of(kind), decoding) as running, _greeted(connect(_url(running))) as connection:
        connection.send(_request(num_tokens=tokens))
        assert explanation in str(connection.recv(timeout=60))


def test_health_and_metrics(server: PolicyServer) -> None:
    assert _get(server, "/healthz") == "OK\n"
    with _greeted(connect(_url(server))) as connection:
        tokens, requests = _metric(server, "oat_tokens_total"), _metric(server, "oat_request_seconds_count")
        connection.send(_request())
        connection.recv()
        assert _metric(server, "oat_tokens_total") == tokens + 8
        assert _metric(server, 'oat_request_seconds_bucket{le="+Inf"}') == requests + 1
        assert _metric(server, "oat_connections") >= 1
    for line in _get(server, "/metrics").splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{\w+="[^"]+"\})? [0-9.]+', line)


def test_hostile_messages_are_refused_and_disturb_nobody(server: PolicyServer) -> None:
    refused = _metric(server, 'oat_requests_total{outcome="refused"}')
    with _greeted(connect(_url(server))) as well_behaved:
        for message in islice(hostile_messages((STATE_DIM,)), 43):
            with _greeted(connect(_url(server))) as connection:
                connection.send(message)
                explanation = connection.recv(timeout=10)
                assert isinstance(explanation, str), message
                assert explanation
        well_behaved.send(_request())
        assert _receive(well_behaved)["actions"].shape == (16, 3)
    assert _metric(server, 'oat_requests_total{outcome="refused"}') == refused + 43
    assert _metric(server, 'oat_requests_total{outcome="failed"}') == 0


def test_a_bad_observation_is_explained_and_the_conversation_goes_on(server: PolicyServer) -> None:
    """Openpi's client does not connect again: one bad frame must not end its episode."""
    client = WebsocketClientPolicy("127.0.0.1", server.port)
    with pytest.raises(RuntimeError, match="prompt"):
        client.infer({STATE: _state(), "prompt": 7})
    with pytest.raises(RuntimeError, match="nan"):
        client.infer({STATE: np.full(STATE_DIM, np.nan, np.float32), "prompt": "push"})
    assert client.infer({STATE: _state(), "prompt": "push"})["actions"].shape == (16, 3)


@pytest.mark.parametrize("message", [b"\xc1", "text", b"\x93\x01\x02\x03"])
def test_what_is_no_message_of_the_protocol_ends_the_connection(server: PolicyServer, message: bytes | str) -> None:
    with _greeted(connect(_url(server))) as connection:
        connection.send(message)
        assert isinstance(connection.recv(timeout=10), str)
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1011


def test_a_bad_request_in_a_batch_spoils_only_itself(server: PolicyServer) -> None:
    def ask(number: int) -> bool:
        with _greeted(connect(_url(server))) as connection:
            state = _state() if number % 2 else np.full(STATE_DIM, np.nan, np.float32)
            connection.send(pack({STATE: state, "prompt": "push"}))
            return isinstance(connection.recv(timeout=60), bytes)

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(16))) == [number % 2 == 1 for number in range(16)]


def test_large_messages_end_the_connection(server: PolicyServer) -> None:
    with _greeted(connect(_url(server))) as connection:
        with pytest.raises(ConnectionClosed) as closed:
            connection.send(bytes(2**20))
            connection.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"\x00" * 5000])
def test_half_open_and_garbled_connections_are_given_up(server: PolicyServer, sent: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(sent)
        while connection.recv(1000):
            pass
    assert _get(server, "/healthz") == "OK\n"


def test_a_client_that_falls_silent_is_given_up(server: PolicyServer) -> None:
    """It sent half a frame and answers no pings."""
    with _greeted(connect(_url(server), ping_interval=None)) as connection:
        before = _metric(server, "oat_connections")
        connection.socket.sendall(b"\x82\xfe\x10\x00")  # the head of a masked frame of 4 KB
        begin = time.monotonic()
        while _metric(server, "oat_connections") == before:
            assert time.monotonic() - begin < 20
            time.sleep(0.1)


def test_a_key_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    with serving(autoregressive("oat"), api_key_file=tmp_path / "key") as server:
        for headers in ({}, {"Authorization": "Api-Key wrong"}, {"Authorization": "secret"}):
            with pytest.raises(InvalidStatus) as refused:
                connect(_url(server), additional_headers=headers)
            assert refused.value.response.status_code == 401
        with pytest.raises(urllib.error.HTTPError, match="401"):
            _get(server, "/metrics")
        assert _get(server, "/healthz") == "OK\n"
        client = WebsocketClientPolicy("127.0.0.1", server.port, api_key="secret")
        assert client.infer({"observation/state": _state(), "prompt": "pull"})["actions"].shape == (16, 3)
        client._ws.close()


def test_others_may_not_come_without_a_key_unless_told(tmp_path: Path) -> None:
    for host in ("0.0.0.0", "192.168.1.5", "robot.example", "::"):
        with pytest.raises(InvalidOption, match="can be reached by others"):
            ServeConfig(tmp_path, host=host)
        assert not ServeConfig(tmp_path, host=host, anyone=True).is_local
    for host in ("127.0.0.1", "::1", "localhost"):
        assert ServeConfig(tmp_path, host=host).is_local
    (tmp_path / "empty").write_text("\n")
    for missing in ("empty", "nowhere"):
        with pytest.raises(InvalidOption, match="key"):
            ServeConfig(tmp_path, api_key_file=tmp_path / missing).read_key()


def test_too_many_clients_are_turned_away() -> None:
    with serving(autoregressive("oat"), max_clients=1) as server, _greeted(connect(_url(server))):
        with pytest.raises(InvalidStatus) as refused:
            connect(_url(server))
        assert refused.value.response.status_code == 503


def test_a_deadline_shortens_the_chunk_and_its_misses_are_counted() -> None:
    with serving(autoregressive("oat"), deadline_ms=1e-3) as server, _greeted(connect(_url(server))) as connection:
        connection.send(_request())
        assert _receive(connection)["num_tokens"] == 1
        assert _metric(server, "oat_deadline_misses_total") == 1
    with serving(autoregressive("oat"), deadline_ms=1e6) as server, _greeted(connect(_url(server))) as connection:
        connection.send(_request())
        assert _receive(connection)["num_tokens"] == 8
        assert _metric(server, "oat_deadline_misses_total") == 0


def test_clients_may_use_other_names() -> None:
    names = ("observation/joints=observation.state",)
    decoding = TokenDecoding(num_tokens=2, num_actions=5)
    with serving(autoregressive("oat"), decoding, rename=names) as server:
        client = WebsocketClientPolicy("127.0.0.1", server.port)
        reply = client.infer({"observation/joints": _state(), "prompt": "push"})
        assert (reply["num_tokens"], reply["actions"].shape) == (2, (5, 3))
        client._ws.close()
    with pytest.raises(InvalidOption, match="rename"):
        ServeConfig(Path("policy"), rename=("a",))


def test_what_no_request_could_be_answered_with_is_refused_at_the_start(tmp_path: Path) -> None:
    for kind in ("bin", "oat"):
        policy_of(kind).save(tmp_path / kind)
    with pytest.raises(InvalidOption, match="a deadline needs a policy whose every prefix decodes"):
        load_servable(ServeConfig(tmp_path / "bin", deadline_ms=50))
    with pytest.raises(UnknownName, match=r"observation\.stat'\. Did you mean 'observation\.state'"):
        load_servable(ServeConfig(tmp_path / "oat", rename=("joints=observation.stat",)))
    with pytest.raises(InvalidOption, match="an export, which PyTorch does not compile"):
        load_servable(ServeConfig(exported("oat")[1], compiled=True))
    names = ("joints=observation.state", "instruction=prompt")
    policy, _ = load_servable(ServeConfig(tmp_path / "oat", deadline_ms=50, rename=names))
    assert policy.anytime


def test_stopping_finishes_requests_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, begun = autoregressive("oat"), threading.Event()
    predict = policy.predict_chunk

    def slowly(*arguments: object, **options: object) -> object:
        begun.set()
        time.sleep(1)
        return predict(*arguments, **options)  # type: ignore[arg-type]

    with serving(policy) as server:
        monkeypatch.setattr(policy, "predict_chunk", slowly)
        busy, idle = (_greeted(connect(_url(server))) for _ in range(2))
        busy.send(_request())
        assert begun.wait(10)
        url = _url(server)
    assert _receive(busy)["actions"].shape == (16, 3)
    for connection in (busy, idle):
        with pytest.raises(ConnectionClosed) as closed:
            connection.recv(timeout=10)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1001
    with pytest.raises(OSError, match="refused"):
        connect(url)


def test_our_own_mistakes_are_told_and_survived(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = autoregressive("oat")
    with serving(policy) as server:
        with monkeypatch.context() as broken, _greeted(connect(_url(server))) as connection:
            broken.setattr(policy, "predict_chunk", lambda *_, **__: 1 / 0)
            connection.send(_request())
            assert "ZeroDivisionError" in connection.recv()
        with _greeted(connect(_url(server))) as connection:
            connection.send(_request())
            assert "actions" in _receive(connection)
        assert _metric(server, 'oat_requests_total{outcome="failed"}') == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_two_keys_in_one_request_are_a_bad_request(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("secret\n")
    with serving(autoregressive("oat"), api_key_file=tmp_path / "key") as server:
        for path in ("/metrics", "/"):
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as connection:
                key = "Authorization: Api-Key secret\r\n"
                upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                nonce = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                request = f"GET {path} HTTP/1.1\r\nHost: x\r\n{upgrade}{nonce}{key}{key}\r\n"
                connection.sendall(request.encode())
                assert connection.recv(100).startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize("number", [float("inf"), float("nan"), 0.0, -1.0])
@pytest.mark.parametrize("name", ["max_message_mb", "client_timeout", "deadline_ms"])
def test_sizes_and_times_are_finite(name: str, number: float) -> None:
    with pytest.raises(InvalidOption, match="must be positive and finite"):
        ServeConfig(Path("policy"), **cast(Any, {name: number}))
