"""A kind of policy and a stopping rule that only this file knows go all the way: train, load, act, serve, export."""

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat import cli
from oat.data.episodes import STATE
from oat.data.normalize import Normalizer
from oat.errors import InvalidOption, UnknownName
from oat.export.export import compare, export_policy
from oat.export.graph_policy import GraphPolicy
from oat.export.graphs import Graph, context_graph
from oat.export.loading import load_predictor
from oat.policies import POLICIES, BasePredictor, Chunk, Decoding, DecodingOptions, Noise, load_policy
from oat.policies.config import PolicyConfig
from oat.policies.context import ContextConfig, Values
from oat.policies.learning import Lesson, PolicySetup
from oat.policies.policy import Policy
from oat.policies.stopping import STOPPING_RULES, StoppingRule, make_stopping_rule
from oat.serving.client import PolicyClient
from oat.tokenizers.decoder import masked_error
from oat.tokenizers.space import ActionSpace
from tests.evaluation.test_rollout import plan, run
from tests.policies.small import autoregressive, observe
from tests.serving.running import serving

HORIZON, DIM = 8, 3


@dataclass(frozen=True)
class ToyConfig(PolicyConfig):
    """The size of a policy that predicts a chunk in one pass."""

    gain: float = 1.0
    """Multiplies what it predicts."""


@dataclass(frozen=True)
class OnePass(Decoding):
    """Say that there is nothing to choose."""

    @property
    def name(self) -> str:
        return "one pass"


class ToyPredictor(BasePredictor):
    """Predict a chunk in one step."""

    kind = "toy"

    @property
    def default_decoding(self) -> OnePass:
        return OnePass()

    def check_decoding(self, decoding: Decoding) -> None:
        if decoding != OnePass():
            raise InvalidOption(f"a toy has one pass, got {decoding}")

    @property
    def anytime(self) -> bool:
        return True

    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, rule: StoppingRule
    ) -> Iterator[Chunk]:
        actions = self.compute(values, tasks)
        ones = torch.ones(len(actions), dtype=torch.int64)
        yield Chunk(actions, ones > 0, ones)

    def compute(self, values: Values, tasks: Int64[Tensor, " batch"]) -> Float[Tensor, "batch time dim"]:
        raise NotImplementedError


class ToyPolicy(ToyPredictor, Policy):
    """Regress the chunk on the mean context token."""

    config_class = ToyConfig
    exported_as = "tests.policies.test_open_policies:ToyGraphs"

    def __init__(self, context: ContextConfig, space: ActionSpace, config: PolicyConfig) -> None:
        super().__init__(context, space, config)
        assert isinstance(config, ToyConfig)
        self.gain = config.gain
        self.normalizer = Normalizer(space.model_dim)
        self.head = nn.Linear(config.width.dim, space.action_horizon * space.model_dim)

    @classmethod
    def for_training(cls, setup: PolicySetup, config: PolicyConfig) -> "ToyPolicy":
        policy = cls(setup.context, setup.space, config)
        policy.normalizer = setup.normalizer
        return policy

    @property
    def action_normalizer(self) -> Normalizer:
        return self.normalizer

    def forward(self, values: Values, tasks: Int64[Tensor, " batch"]) -> Float[Tensor, "batch time dim"]:
        flat = self.head(self.context(values, tasks).mean(1))
        return self.gain * flat.unflatten(1, (self.space.action_horizon, self.space.model_dim))

    def loss(
        self, module: Callable[..., Any], lesson: Lesson, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        assert lesson.actions is not None
        assert lesson.valid_mask is not None
        return masked_error(module(lesson.values, lesson.tasks), lesson.actions, lesson.valid_mask).mean(), {}

    def compute(self, values: Values, tasks: Int64[Tensor, " batch"]) -> Float[Tensor, "batch time dim"]:
        return self.normalizer.denormalize(self(values, tasks))


class ToyGraph(nn.Module):
    """The whole policy as one graph."""

    def __init__(self, policy: ToyPolicy) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, tasks: Int64[Tensor, " batch"], *values: Tensor) -> Float[Tensor, "batch time dim"]:
        return self.policy.compute(dict(zip(self.policy.observed.keys, values, strict=True)), tasks)


class ToyGraphs(ToyPredictor, GraphPolicy):
    """Run the toy's only graph."""

    quantized = ()

    @classmethod
    def graphs_of(cls, policy: ToyPolicy) -> dict[str, Graph]:
        return {"chunk": Graph(ToyGraph(policy), context_graph(policy).inputs, ("actions",), variadic_from=1)}

    def compute(self, values: Values, tasks: Int64[Tensor, " batch"]) -> Float[Tensor, "batch time dim"]:
        given = {"tasks": tasks, **{key: values[key] for key in self.observed.keys}}
        (actions,) = self.engine.run("chunk", {name: self.engine.put(value) for name, value in given.items()})
        return self.engine.get(actions)


@pytest.fixture
def registered() -> Iterator[None]:
    """Do what a new kind of policy does: one line."""
    POLICIES["toy"] = ToyPolicy
    yield
    del POLICIES["toy"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A point that moves by a linear function of its state."""
    state = np.random.default_rng(0).normal(size=(240, DIM + 1)).astype(np.float32)
    ends = np.arange(30, 241, 30)
    path = tmp_path / "data.npz"
    np.savez(path, actions=0.5 * state[:, :DIM], state=state, tasks=np.array(["move"] * 8), episode_ends=ends)
    return path


@pytest.mark.usefixtures("registered")
def test_a_new_kind_goes_all_the_way(data: Path, tmp_path: Path) -> None:
    command = ["train", "--policy", "toy", "--preset", "tiny", "--data", data, "--out", tmp_path / "run"]
    command += ["--action-horizon", HORIZON, "--steps", 20, "--validate-every", 10]
    cli.main([str(word) for word in command])
    policy = load_policy(tmp_path / "run")
    assert isinstance(policy, ToyPolicy)
    assert policy.config == ToyConfig.presets()["tiny"].model
    assert load_policy(tmp_path / "run/last").training_record.step == 20
    _acts(policy, tmp_path)
    _is_served(policy)
    export_policy(tmp_path / "run", tmp_path / "export")
    runtime = load_predictor(tmp_path / "export")
    assert isinstance(runtime, ToyGraphs)
    assert compare(policy, runtime, rows=20).largest < 1e-5
    _is_served(runtime)


def _acts(policy: Policy, folder: Path) -> None:
    assert (policy.method, policy.default_decoding.name) == ("toy", "one pass")
    assert policy.decodings(DecodingOptions()) == [OnePass()]
    with pytest.raises(InvalidOption, match="kind toy has no such options: leave out --denoising-steps, --greedy"):
        policy.decodings(DecodingOptions(denoising_steps=3, greedy=True))
    records = run(plan(folder, [3, 9], OnePass()), policy)  # type: ignore[arg-type]
    assert {condition: (record.success, record.steps) for condition, record in records.items()} == {
        3: (True, 3),
        9: (True, 9),
    }


def _is_served(policy: BasePredictor) -> None:
    observation = policy.random_observation(1)
    expected = policy.predict_chunk(observation).actions
    (streamed,) = policy.stream(observation)
    assert torch.equal(streamed.actions, expected)
    with serving(policy) as server, PolicyClient(f"ws://127.0.0.1:{server.port}") as client:
        reply = client.infer({STATE: observation.values[STATE][0]}, "move")
    np.testing.assert_allclose(reply.actions, expected[0], atol=1e-6)


def test_an_unknown_kind_names_those_there_are(data: Path, tmp_path: Path) -> None:
    from oat.training.config import TrainPolicyConfig
    from oat.training.policies import train_policy

    with pytest.raises(UnknownName, match="autoregressive"):
        train_policy(TrainPolicyConfig(data, tmp_path / "run", "autoregresive", preset="tiny"))


class Sure(StoppingRule):
    """Stop when every row's last token had at least this log-probability."""

    watches = True

    def __init__(self, least: float) -> None:
        self.least = least
        self.asked = 0

    def wants_chunk(self, log_probabilities: Float[Tensor, " batch"] | None = None) -> bool:
        assert log_probabilities is not None
        self.asked += 1
        return bool((log_probabilities >= self.least).all())


def test_a_new_stopping_rule_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(STOPPING_RULES, "sure", Sure)
    policy = autoregressive("oat")
    whole = policy.predict_chunk(observe(1))
    assert whole.log_probabilities is not None
    likely = whole.log_probabilities[0]
    surest = int(likely.argmax())
    rule = make_stopping_rule("sure", float(likely[surest]) - 1e-4)
    chunk = policy.predict_chunk(observe(1), stopping=rule)
    assert isinstance(rule, Sure)
    assert chunk.steps.tolist() == [rule.asked] == [surest + 1]
    assert policy.predict_chunk(observe(1), stopping=make_stopping_rule("sure", 1.0)).steps.tolist() == [8]
    with pytest.raises(UnknownName, match="sure"):
        make_stopping_rule("shure")


_PREDICT = """
import sys
import oat
policy = oat.load_policy(sys.argv[1])
policy.predict_chunk(policy.random_observation(1))
loaded = [name for name in sys.modules if name.startswith(("oat.training", "oat.export", "accelerate", "oat.sims"))]
print(loaded)
"""


@pytest.mark.parametrize("kind", ["oat", "diffusion", "regression"])
def test_inference_imports_no_training(kind: str, tmp_path: Path) -> None:
    from tests.policies.small import policy_of

    policy_of(kind).save(tmp_path / "policy")
    done = subprocess.run(
        [sys.executable, "-c", _PREDICT, str(tmp_path / "policy")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
