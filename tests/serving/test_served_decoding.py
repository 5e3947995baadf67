"""Ways to decode behind a server: the same chunks as in process, for every robot, and chosen as `oat eval` does."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oat.data.episodes import STATE
from oat.errors import InvalidOption, PolicyServerError
from oat.export.loading import load_runtime
from oat.interfaces import Observation
from oat.policies import AutoregressivePolicy, Denoising, Noise, TokenDecoding
from oat.policies.choosing import CHOOSING_RULES, Coherent, Guided, Medoid, Previous, make_choosing_rule
from oat.policies.decoding import Decoding, SampledDecoding
from oat.policies.stopping import Fixed, Hindsight, RandomDepth, Residual, Value
from oat.serving.client import PolicyClient, Reply
from oat.serving.config import ServeConfig
from oat.serving.server import PolicyServer, load_servable
from tests.export.exported import exported
from tests.policies.small import STATE_DIM, autoregressive, head_of, knowing, policy_of
from tests.serving.running import serving
from tests.tokenizers.fitted import DIM


def _url(server: PolicyServer) -> str:
    return f"ws://127.0.0.1:{server.port}"


def _state(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=STATE_DIM).astype(np.float32)


def test_a_chunk_goes_on_where_the_one_before_ends() -> None:
    """Served, exported and in process alike, whether the client sends the rest of its chunk or the server keeps it."""
    policy, folder = exported("oat")
    decoding = TokenDecoding(samples=4, choose=Coherent(), executed=8)
    frames = np.stack([_state()] * 2)
    observation = Observation({STATE: frames[None]}, ("push",))

    def expected(chunk: int, rest: np.ndarray | None, seed: int = 5) -> np.ndarray:
        previous = Previous.of([rest], DIM)
        noise = Noise.of([seed], [chunk])
        return policy.predict_chunk(observation, decoding, noise, previous=previous).actions[0].numpy()

    with serving(load_runtime(folder), decoding, execute=8) as running, PolicyClient(_url(running)) as client:
        first = client.infer({STATE: frames}, "push", (5, 0)).actions
        np.testing.assert_allclose(first, expected(0, None), atol=1e-4)
        kept = client.infer({STATE: frames}, "push", (5, 1)).actions
        np.testing.assert_allclose(kept, expected(1, first[8:]), atol=1e-4)
        sent = client.infer({STATE: frames}, "push", (5, 2), first[3:]).actions
        np.testing.assert_allclose(sent, expected(2, first[3:]), atol=1e-4)
        # The next episode has nothing to go on from, and neither has one that comes in between.
        np.testing.assert_allclose(client.infer({STATE: frames}, "push", (5, 0)).actions, first, atol=1e-5)
        other = client.infer({STATE: frames}, "push", (6, 1)).actions
        np.testing.assert_allclose(other, expected(1, None, seed=6), atol=1e-4)
        with pytest.raises(PolicyServerError, match="must be an array of 3-D actions"):
            client.infer({STATE: frames}, "push", (5, 0), np.zeros((4, 2), np.float32))


_SERVED: dict[str, dict[str, Any]] = {
    **{name: {"samples": 4, "choose": make_choosing_rule(name)} for name in CHOOSING_RULES},
    "binary medoid": {"samples": 5, "choose": Medoid((2,))},
    "committed": {"samples": 8, "choose": Guided(), "commit": 2},
    "stopped": {"samples": 2, "stop": RandomDepth((0.0, 0.5, 0.5))},
    "stopped alike": {"stop": Fixed(3)},
    "stopped in hindsight": {"stop": Hindsight(0.3)},
    "positions": {"temperature": (1.0, 2.0, 0.3), "top_k": (10, None, 2)},
}


@pytest.mark.parametrize("way", _SERVED)
def test_every_way_to_decode_is_served_as_it_is_in_process(way: str) -> None:
    """Exported and then served, to several robots at once with rests of their own."""
    _check_served(TokenDecoding(executed=8, **_SERVED[way]))


@pytest.mark.parametrize("options", [{}, {"samples": 4, "choose": Coherent(), "commit": 2}], ids=str)
def test_denoising_is_served_as_it_is_in_process(options: dict[str, Any]) -> None:
    _check_served(Denoising(steps=4, executed=8, **options), "diffusion")


@pytest.mark.parametrize("rule", [Residual, Value])
def test_rules_with_a_head_are_served_as_they_are_in_process(rule: type[Residual | Value]) -> None:
    policy = exported("oat")[0]
    assert isinstance(policy, AutoregressivePolicy)
    _check_served(TokenDecoding(executed=8, stop=rule(1.2 if rule is Residual else 0.05, head_of(policy))))


def _check_served(decoding: SampledDecoding, kind: str = "oat") -> None:
    """Compare what an export gives three clients at once with what the policy gives each alone."""
    policy, folder = exported(kind)
    frames = {robot: np.stack([_state(robot)] * 2) for robot in range(3)}
    rests = {0: None, 1: np.full((6, DIM), 0.2, np.float32), 2: np.full((3, DIM), -0.3, np.float32)}

    def ask(robot: int) -> Reply:
        with PolicyClient(_url(running)) as client:
            return client.infer({STATE: frames[robot]}, "push", (robot, 1), rests[robot])

    with serving(load_runtime(folder), decoding, max_batch=3) as running, ThreadPoolExecutor(3) as pool:
        served = list(pool.map(ask, frames))
    for robot, reply in enumerate(served):
        observation = Observation({STATE: frames[robot][None]}, ("push",))
        noise = Noise.of([robot], [1])
        alone = policy.predict_chunk(observation, decoding, noise, previous=Previous.of([rests[robot]], DIM))
        assert reply.num_tokens == alone.steps[0]
        np.testing.assert_allclose(reply.actions, alone.actions[0].numpy(), atol=1e-4)


def test_rules_are_chosen_by_the_command_line(tmp_path: Path) -> None:
    policy = autoregressive("oat")
    policy.save(tmp_path / "policy")
    options = {"samples": 3, "choose": "coherent", "execute": 4, "commit": 2, "stop": "fixed=5"}
    _, decoding = load_servable(ServeConfig(tmp_path / "policy", **options))  # type: ignore[arg-type]
    assert decoding == TokenDecoding(samples=3, choose=Coherent(), executed=4, commit=2, stop=Fixed(5))
    with pytest.raises(InvalidOption, match="at least 1"):
        ServeConfig(tmp_path, samples=0)
    with pytest.raises(InvalidOption, match=r"for one number of executed actions: --execute"):
        ServeConfig(tmp_path / "policy", stop="residual=1", head=tmp_path / "head")
    with pytest.raises(InvalidOption, match="needs --head"):
        load_servable(ServeConfig(tmp_path / "policy", stop="value=1"))
    short = {"samples": 3, "choose": "coherent", "execute": 4, "num_actions": 4}
    with pytest.raises(InvalidOption, match="execute fewer than all 4"):  # no rest is ever left
        load_servable(ServeConfig(tmp_path / "policy", **short))  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="add --samples"):
        load_servable(ServeConfig(tmp_path / "policy", choose="coherent"))


def test_sampling_is_chosen_by_the_command_line(tmp_path: Path) -> None:
    """Also of a policy that was trained to take the most likely tokens, and to make them exact."""
    knowing("oat", greedy=True, remainder=10.0).save(tmp_path / "policy")

    def decoding(**options: Any) -> Decoding:
        return load_servable(ServeConfig(tmp_path / "policy", **options))[1]

    assert decoding() == TokenDecoding(greedy=True, remainder=True)
    assert decoding(decoding="paper", num_tokens=4) == TokenDecoding(4)
    assert decoding(decoding="tokens") == TokenDecoding(greedy=True)
    sampled = decoding(decoding="tokens", temperature=(1.0, 0.5), top_k=(0, 5))
    assert sampled == TokenDecoding(temperature=(1.0, 0.5), top_k=(None, 5))
    with pytest.raises(InvalidOption, match="--decoding paper settles how tokens are chosen: leave out --temperature"):
        decoding(decoding="paper", temperature=0.5)


def test_clients_are_told_how_chunks_are_made() -> None:
    decoding = TokenDecoding(samples=4, choose=Coherent())
    with serving(policy_of("oat"), decoding) as running, PolicyClient(_url(running)) as client:
        told = client.metadata
    assert (told["decoding"], told["samples"]) == ("K=all coherent-of-4", 4)
