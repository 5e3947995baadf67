"""The regression policy: one pass, no noise; padded steps do not count, and what it is not told to do is refused."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oat import cli
from oat.data.episodes import STATE
from oat.data.transforms import Chain, Relative, Rotation6D
from oat.errors import InvalidOption
from oat.export.engines import OnnxEngine
from oat.export.export import compare, export_policy, to_int8, to_onnx
from oat.export.loading import load_runtime
from oat.export.regression_graphs import GraphRegressionPolicy
from oat.nn.mlp import ResidualMLP
from oat.policies import DecodingOptions, Denoising, Noise, OnePass, RegressionPolicy, TokenDecoding, load_policy
from oat.policies.config import AutoregressiveConfig, RegressionConfig
from oat.policies.context import ContextConfig
from oat.policies.learning import Lesson
from oat.policies.regression import regression_error
from oat.serving.client import PolicyClient
from oat.tokenizers.space import ActionSpace
from tests.export.exported import exported
from tests.policies.small import CONFIG, CONTEXT, choose_rows, observe, regression
from tests.serving.running import serving
from tests.tokenizers.fitted import DIM, HORIZON, smooth_chunks

BOTH = pytest.mark.parametrize("queries", ["chunk", "action"])


@pytest.mark.parametrize("loss", ["mse", "l1"])
def test_padded_steps_do_not_count_in_the_loss(loss: str) -> None:
    """Of a row with one valid step, only that step's error counts, whatever the others hold."""
    predicted, target = smooth_chunks(3, 1), smooth_chunks(3, 2)
    valid = torch.arange(HORIZON) < torch.tensor([HORIZON, 5, 1])[:, None]
    errors = (predicted - target).square() if loss == "mse" else (predicted - target).abs()
    steps = errors.mean(-1)
    expected = torch.stack([steps[0].mean(), steps[1, :5].mean(), steps[2, 0]])
    torch.testing.assert_close(regression_error(predicted, target, valid, loss), expected)
    spoilt = torch.where(valid[..., None], target, 1e3)
    torch.testing.assert_close(regression_error(predicted, spoilt, valid, loss), expected)


@BOTH
@pytest.mark.parametrize("loss", ["mse", "l1"])
def test_it_learns_a_few_chunks_by_heart(queries: str, loss: str) -> None:
    policy, rows = regression(queries=queries, loss=loss).train(), 4
    clean = smooth_chunks(rows, 5).clamp(-1, 1) * 0.5
    values, tasks = policy.context.read(observe(rows))
    lesson = Lesson(values, tasks, clean, torch.ones(rows, HORIZON, dtype=torch.bool))
    optimizer, losses = torch.optim.AdamW(policy.parameters(), 3e-3, weight_decay=0.0), []
    for step in range(80):
        error, _ = policy.loss(policy, lesson, torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        torch.autograd.backward(error)
        optimizer.step()
        losses.append(float(error.detach()))
    assert losses[-1] < 0.2 * losses[0]
    actions = policy.predict_chunk(observe(rows)).actions
    errors = (actions[:, None] - 2 * clean).square().mean((2, 3))  # of every row's chunk to every row's target
    assert torch.equal(errors.argmin(1), torch.arange(rows))


def test_the_loss_falls_most_for_what_it_minimises() -> None:
    """Of targets that are mostly 0 and sometimes 1, squares want the mean and absolute errors the median."""
    target = (torch.arange(8) < 2).float()[:, None, None]
    valid = torch.ones(8, 1, dtype=torch.bool)
    guesses = torch.linspace(0, 1, 101)
    for loss, best in (("mse", 0.25), ("l1", 0.0)):
        errors = torch.stack([regression_error(guess.expand(8, 1, 1), target, valid, loss).mean() for guess in guesses])
        assert float(guesses[errors.argmin()]) == pytest.approx(best)


def test_an_untrained_policy_predicts_the_centre() -> None:
    policy = RegressionPolicy(CONTEXT, ActionSpace(HORIZON, DIM))
    assert torch.equal(policy.eval().predict_chunk(observe(2)).actions, torch.zeros(2, HORIZON, DIM))
    assert ResidualMLP(3, 8, 2, 5)(torch.ones(2, 3)).tolist() == [[0.0] * 5] * 2


@BOTH
def test_it_depends_on_what_it_sees_and_on_nothing_else(queries: str) -> None:
    """Neither on noise nor on the caller's random state; the same row twice gives the same chunk."""
    policy, same = regression(queries=queries), choose_rows(observe(2), [0, 1, 0])
    first = policy.predict_chunk(same, noise=Noise((1, 2, 3)))
    torch.manual_seed(99)
    again = policy.predict_chunk(same, noise=Noise((4, 5, 6)))
    assert torch.equal(first.actions, again.actions)
    torch.testing.assert_close(first.actions[0], first.actions[2])  # not to the bit: threads may share out the rows
    assert not torch.allclose(first.actions[0], first.actions[1], atol=1e-3)
    assert not torch.allclose(first.actions[:, 0], first.actions[:, -1], atol=1e-3)


def test_the_chunk_is_kept_within_the_range_of_the_data() -> None:
    policy = regression()
    policy.normalizer.low.copy_(torch.tensor([-0.1, -1.0, -0.3]))
    policy.normalizer.high.copy_(torch.tensor([0.1, 0.0, 0.5]))
    torch.nn.init.normal_(policy.head.out.weight, std=5.0)
    actions = policy.predict_chunk(observe(4)).actions
    assert (actions >= 2 * policy.normalizer.low - 1e-6).all()
    assert (actions <= 2 * policy.normalizer.high + 1e-6).all()
    assert actions.std() > 0


def test_there_is_one_chunk_whatever_is_asked() -> None:
    """A stream has one, and a deadline, however short, changes nothing."""
    policy = regression()
    whole = policy.predict_chunk(observe(2))
    assert (whole.steps.tolist(), whole.valid.tolist()) == ([1, 1], [True, True])
    assert whole.tokens is None
    assert whole.log_probabilities is None
    (streamed,) = policy.stream(observe(2))
    policy.warm_up(2)
    for chunk in (streamed, *(policy.predict_chunk(observe(2), deadline_ms=deadline) for deadline in (1e-3, 1e6))):
        assert torch.equal(chunk.actions, whole.actions)
    with pytest.raises(InvalidOption, match="positive"):
        policy.predict_chunk(observe(1), deadline_ms=0)


@pytest.mark.parametrize("decoding", [TokenDecoding(), Denoising()])
def test_what_it_cannot_do_is_refused_at_the_call(decoding: Any) -> None:
    for policy in (regression(), load_runtime(exported("regression")[1])):
        for method in (policy.predict_chunk, policy.stream):
            with pytest.raises(InvalidOption, match="decodes by OnePass"):
                method(observe(1), decoding)


def test_options_of_other_kinds_are_refused_in_one_line() -> None:
    policy = regression()
    assert policy.decodings(DecodingOptions()) == [OnePass()]
    assert (policy.method, policy.default_decoding.name) == ("bc", "one pass")
    told = "kind regression predicts a chunk in one pass, generates no tokens and does not denoise: leave out "
    for options, flags in (
        (DecodingOptions((4,)), "--num-tokens"),
        (DecodingOptions(greedy=True, denoising_steps=3), "--denoising-steps, --greedy"),
        (DecodingOptions(num_actions=3), "--num-actions"),
    ):
        with pytest.raises(InvalidOption, match=told + flags):
            policy.decodings(options)


@pytest.mark.parametrize("size", ["mlp_width", "mlp_depth", "layers"])
def test_sizes_that_make_no_sense_are_refused(size: str) -> None:
    options: dict[str, Any] = {size: 0}
    with pytest.raises(InvalidOption, match=r"layer|must be positive"):
        replace(RegressionConfig(), **options)


def test_another_kind_s_configuration_is_refused() -> None:
    with pytest.raises(InvalidOption, match="configured by RegressionConfig"):
        RegressionPolicy(CONTEXT, ActionSpace(HORIZON, DIM), AutoregressiveConfig())


def test_presets_differ_from_the_others_in_weight_decay() -> None:
    for name, preset in RegressionConfig.presets().items():
        other = AutoregressiveConfig.presets()[name]
        assert preset.training == replace(other.training, weight_decay=0.05)
        assert (preset.model.width, preset.model.layers) == (other.model.width, other.model.layers)


@BOTH
def test_a_checkpoint_gives_back_the_configuration_and_the_chunks(queries: str, tmp_path: Path) -> None:
    policy = regression(queries=queries, loss="l1")
    policy.save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy")
    assert isinstance(loaded, RegressionPolicy)
    assert (loaded.config, loaded.config.loss) == (policy.config, "l1")
    assert torch.equal(loaded.predict_chunk(observe(3)).actions, policy.predict_chunk(observe(3)).actions)


@BOTH
def test_the_export_is_the_same_function(queries: str, tmp_path: Path) -> None:
    policy = regression(queries=queries)
    policy.save(tmp_path / "policy")
    export_policy(tmp_path / "policy", tmp_path / "export")
    runtime = load_runtime(tmp_path / "export")
    assert isinstance(runtime, GraphRegressionPolicy)
    assert {path.name for path in (tmp_path / "export").iterdir()} == {"config.json", "chunk.onnx"}
    for rows in (1, 7):
        expected, found = (each.predict_chunk(observe(rows)) for each in (policy, runtime))
        torch.testing.assert_close(found.actions, expected.actions, atol=1e-5, rtol=1e-5)
        assert torch.equal(found.steps, expected.steps)
    (streamed,) = runtime.stream(observe(2))
    assert torch.equal(streamed.actions, runtime.predict_chunk(observe(2)).actions)


def test_rows_of_the_export_do_not_depend_on_each_other() -> None:
    runtime, observation = load_runtime(exported("regression")[1]), observe(6)
    whole = runtime.predict_chunk(observation)
    for row in range(6):
        part = runtime.predict_chunk(choose_rows(observation, [row]), pad_to=6)
        assert torch.equal(part.actions[0], whole.actions[row])


def test_eight_bits_change_little() -> None:
    policy, folder = exported("regression")
    model = (folder / "chunk.onnx").read_bytes()
    small = to_int8(model)
    assert len(small) < 0.75 * len(model)
    agreement = compare(policy, GraphRegressionPolicy(policy.observed, policy.space, OnnxEngine({"chunk": small})))
    assert 0 < agreement.mean < 0.02


def _seeing() -> RegressionPolicy:
    """With a camera, and actions that are rotated and relative to a state which it does not observe."""
    space = ActionSpace(16, 4, Chain((Rotation6D(start=0), Relative(dims=(6,), state_dims=(0,)))), state_dim=4)
    context = ContextConfig(
        vectors=("observation.joints",),
        vector_dims=(5,),
        cameras=("observation.images.front",),
        camera_sizes=((24, 32),),
        tasks=("push", "pull"),
    )
    torch.manual_seed(0)
    policy = RegressionPolicy(context, space, RegressionConfig(CONFIG.width, CONFIG.layers, mlp_width=48))
    policy.normalizer.low.fill_(-1.0)
    policy.normalizer.high.fill_(1.0)
    torch.nn.init.normal_(policy.head.out.weight, std=0.1)
    return policy.eval()


def test_cameras_and_action_transforms_are_in_the_graph() -> None:
    policy = _seeing()
    graphs = GraphRegressionPolicy.graphs_of(policy)
    assert list(graphs["chunk"].inputs) == ["tasks", "observation.joints", "observation.images.front", "state"]
    runtime = GraphRegressionPolicy(policy.observed, policy.space, OnnxEngine({"chunk": to_onnx(graphs["chunk"])}))
    observation = policy.random_observation(5)
    assert STATE in observation.values
    expected, found = (each.predict_chunk(observation).actions for each in (policy, runtime))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_it_is_served() -> None:
    for policy in (regression(), load_runtime(exported("regression")[1])):
        observation = observe(1)
        expected = policy.predict_chunk(observation).actions[0]
        with serving(policy) as server, PolicyClient(f"ws://127.0.0.1:{server.port}") as client:
            reply = client.infer({STATE: observation.values[STATE][0]}, observation.tasks[0])
        np.testing.assert_allclose(reply.actions, expected, atol=1e-6)


def _run(*words: object) -> None:
    cli.main([str(word) for word in words])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A point that moves by a linear function of its state."""
    state = np.random.default_rng(0).normal(size=(240, 4)).astype(np.float32)
    path = tmp_path / "data.npz"
    ends = np.arange(30, 241, 30)
    np.savez(path, actions=0.5 * state[:, :3], state=state, tasks=np.array(["move"] * 8), episode_ends=ends)
    return path


def test_the_command_line_trains_it(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("train", "--policy", "regression", "--preset", "tiny", "--data", data, "--out", out, "--steps", 4)
    _run(*words, "--validate-every", 2, "--loss", "l1", "--mlp-width", 32, "--action-horizon", 8)
    policy = load_policy(out)
    assert isinstance(policy, RegressionPolicy)
    size = RegressionConfig.presets()["tiny"].model
    assert policy.config == RegressionConfig(size.width, size.layers, loss="l1", mlp_width=32)
    assert policy.space.action_horizon == 8
    measures = policy.training_record.measures
    assert measures is not None
    assert measures.score == measures.mse


@pytest.mark.parametrize(
    ("kind", "words", "told"),
    [
        ("regression", ("--tokenizer", "somewhere"), "kind regression has no tokenizer: leave out --tokenizer"),
        ("diffusion", ("--loss", "l1"), "--loss means nothing to diffusion, it is for regression: leave it out"),
        ("autoregressive", ("--queries=action",), "--queries means nothing to autoregressive, it is for regression"),
    ],
)
def test_the_command_line_refuses_what_means_nothing(
    kind: str,
    words: tuple[str, ...],
    told: str,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        _run("train", "--policy", kind, "--preset", "tiny", "--data", data, "--out", tmp_path / "x", *words)
    printed = capsys.readouterr().err
    assert told in printed
    assert len(printed.strip().splitlines()) == 1
    assert not (tmp_path / "x").exists()
