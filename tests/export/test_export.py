"""Exported policies are the same functions: equal tokens for equal noise, whatever is asked of them."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from torch import Tensor

from oat.data.episodes import STATE
from oat.data.transforms import Chain, Relative, Rotation6D
from oat.errors import CheckpointError, InvalidObservation, InvalidOption, UnknownName
from oat.export.engines import Engine, OnnxEngine
from oat.export.export import compare, export_policy, to_onnx
from oat.export.folded_blocks import FoldedMemory
from oat.export.graph_policy import graph_class
from oat.export.loading import load_predictor, load_runtime
from oat.export.token_graphs import TokenShape
from oat.interfaces import Observation
from oat.policies import AutoregressivePolicy, Denoising, DiffusionPolicy, Noise, Policy, TokenDecoding
from oat.policies.choosing import ChoosingRule, Coherent, Contrast, Likelihood, Medoid, Previous
from oat.policies.context import ContextConfig
from oat.policies.stopping import Residual
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.config import DecoderConfig, OATConfig
from oat.tokenizers.oat import OATTokenizer
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens
from tests.export.exported import exported
from tests.io.edits import edit_config
from tests.policies.small import CONFIG, CONTEXT, choose_rows, give_range, head_of, observe, policy_of, tokenizer_of
from tests.tokenizers.fitted import DIM

ROWS = 2000
_FILES = ("context.onnx", "step.onnx", "actions.onnx", "chunk.onnx")


@pytest.mark.parametrize(
    "decoding",
    [
        TokenDecoding(),
        TokenDecoding(num_tokens=3, temperature=0.7, top_k=40),
        TokenDecoding(top_k=None),
        TokenDecoding(num_tokens=1, greedy=True, num_actions=5),
    ],
    ids=str,
)
def test_equal_noise_gives_equal_tokens(decoding: TokenDecoding) -> None:
    policy, folder = exported("oat")
    runtime, observation, noise = load_runtime(folder), observe(ROWS), Noise.of([3] * ROWS, range(ROWS))
    expected, found = (each.predict_chunk(observation, decoding, noise) for each in (policy, runtime))
    assert expected.tokens is not None
    assert found.tokens is not None
    assert torch.equal(found.tokens.ids, expected.tokens.ids)
    assert torch.equal(found.steps, expected.steps)
    assert len(np.unique(expected.tokens.ids[:, 0])) > 1
    torch.testing.assert_close(found.actions, expected.actions, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(found.log_probabilities, expected.log_probabilities, atol=1e-4, rtol=1e-4)


def test_diffusion_is_the_same_too() -> None:
    policy, folder = exported("diffusion")
    runtime, observation, noise = load_runtime(folder), observe(ROWS), Noise(tuple(range(ROWS)))
    expected, found = (each.predict_chunk(observation, Denoising(7), noise) for each in (policy, runtime))
    torch.testing.assert_close(found.actions, expected.actions, atol=1e-3, rtol=1e-4)


@pytest.mark.parametrize("commit", [0, 2])
@pytest.mark.parametrize("make", [Medoid, Likelihood, Coherent, lambda: Contrast(policy_of("oat"), "oat")])
def test_tokens_without_prefixes_are_chosen_among_alike(make: Callable[[], ChoosingRule], commit: int) -> None:
    policy, folder = exported("quest")
    rows = 30
    rests = Previous.of([np.full((4, DIM), 0.2), None, np.full((2, DIM), -0.3)] * (rows // 3), DIM)
    decoding = TokenDecoding(samples=5, choose=make(), commit=commit, executed=8)
    expected, found = (
        each.predict_chunk(observe(rows), decoding, Noise(tuple(range(rows))), previous=rests)
        for each in (policy, load_runtime(folder))
    )
    assert expected.tokens is not None
    assert found.tokens is not None
    assert found.tokens.tolist() == expected.tokens.tolist()
    torch.testing.assert_close(found.actions, expected.actions, atol=1e-4, rtol=1e-4)


def test_rows_do_not_depend_on_each_other() -> None:
    runtime, observation = load_runtime(exported("oat")[1]), observe(6)
    whole = runtime.predict_chunk(observation, noise=Noise(tuple(range(6))))
    for row in range(6):
        alone = runtime.predict_chunk(choose_rows(observation, [row]), noise=Noise((row,)), pad_to=6)
        assert torch.equal(alone.actions[0], whole.actions[row])


def test_it_streams_every_prefix() -> None:
    policy, folder = exported("oat")
    runtime, noise = load_runtime(folder), Noise((1, 2))
    expected, found = (list(each.stream(observe(2), noise=noise)) for each in (policy, runtime))
    assert [chunk.steps.tolist() for chunk in found] == [[k, k] for k in range(1, 9)]
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(other.actions, one.actions, atol=1e-5, rtol=1e-5)


def test_eight_bits_change_few_tokens_and_no_actions(tmp_path: Path) -> None:
    """Where the tokens are the same, so are the actions: only the step is approximate."""
    policy, folder = exported("oat")
    small = tmp_path / "small"
    export_policy(folder.with_name("policy"), small, precision="int8")
    sizes = {name: (small / name).stat().st_size / (folder / name).stat().st_size for name in _FILES}
    assert sizes.pop("step.onnx") < 0.75  # most of this small one is its embeddings
    assert sizes.pop("chunk.onnx") < 0.95  # a step and actions in one
    assert set(sizes.values()) == {1}
    agreement = compare(policy, load_runtime(small), rows=ROWS)
    assert 0.8 < agreement.equal < 1
    assert agreement.largest < 1e-5
    assert agreement.mean < 0.05


def test_a_stopping_head_promises_nothing_for_eight_bits(tmp_path: Path) -> None:
    """It was calibrated with what the weights were."""
    policy, folder = exported("oat")
    assert isinstance(policy, AutoregressivePolicy)
    export_policy(folder.with_name("policy"), tmp_path / "small", precision="int8")
    decoding = TokenDecoding(stop=Residual(1.2, head_of(policy)), executed=8)
    assert load_runtime(folder).predict_chunk(observe(2), decoding).steps.shape == (2,)
    with pytest.raises(InvalidOption, match="in float32"):
        load_runtime(tmp_path / "small").predict_chunk(observe(2), decoding)


def _shape(policy: Policy) -> TokenShape:
    assert isinstance(policy, AutoregressivePolicy)
    return TokenShape.of(policy)


def _engine(policy: Policy, *names: str) -> OnnxEngine:
    """Some of a policy's graphs."""
    graphs = graph_class(type(policy)).graphs_of(policy)
    return OnnxEngine({name: to_onnx(graphs[name]) for name in names})


def _run(engine: Engine, name: str, inputs: dict[str, Tensor]) -> list[Tensor]:
    return [engine.get(value) for value in engine.run(name, {key: engine.put(each) for key, each in inputs.items()})]


def _flowing() -> BaseTokenizer:
    """One whose decoder is a rectified flow."""
    plain = tokenizer_of("oat")
    torch.manual_seed(0)
    config = replace(plain.config, decoder=DecoderConfig("flow", layers=1, flow_steps=2))
    tokenizer = OATTokenizer(plain.space, config)
    torch.nn.init.normal_(tokenizer.decoder.head.weight, std=0.3)
    give_range(tokenizer)
    return tokenizer


@pytest.mark.parametrize(
    "make", [lambda: tokenizer_of("bin"), lambda: tokenizer_of("quest"), lambda: tokenizer_of("rvq"), _flowing]
)
def test_every_total_tokenizer_decodes_as_a_graph(make: Callable[[], BaseTokenizer]) -> None:
    policy = AutoregressivePolicy(CONTEXT, make(), CONFIG)
    tokenizer = policy.tokenizer
    ids = torch.randint(tokenizer.vocab_size, (5, tokenizer.max_tokens), generator=torch.Generator().manual_seed(0))
    lengths = torch.tensor([1, 3, 8, 5, 2]) if tokenizer.prefix_decodable else torch.full((5,), tokenizer.max_tokens)
    (found,) = _run(_engine(policy, "actions"), "actions", {"ids": ids, "lengths": lengths, "times": torch.arange(6)})
    torch.testing.assert_close(found, tokenizer.decode(Tokens(ids, lengths), num_actions=6), atol=1e-4, rtol=1e-4)


def _seeing() -> AutoregressivePolicy:
    """With a camera, actions relative to a state and rotated, and a decoder whose steps all see each other."""
    transform = Chain((Rotation6D(start=0), Relative(dims=(6,), state_dims=(0,))))
    space = ActionSpace(16, 4, transform, state_dim=4)
    torch.manual_seed(0)
    tokenizer = OATTokenizer(space, OATConfig(width=CONFIG.width, decoder=DecoderConfig(layers=2, causal=False)))
    torch.nn.init.normal_(tokenizer.decoder.head.weight, std=0.3)
    give_range(tokenizer)
    context = ContextConfig(
        vectors=("observation.joints",),
        vector_dims=(5,),
        cameras=("observation.images.front",),
        camera_sizes=((24, 32),),
        tasks=("push", "pull"),
    )
    return AutoregressivePolicy(context, tokenizer, CONFIG).eval()


def test_cameras_and_action_transforms_are_in_the_graphs() -> None:
    policy = _seeing()
    engine, observation = _engine(policy, "context", "actions"), policy.random_observation(5)
    assert set(observation.values) == {"observation.joints", "observation.images.front", STATE}
    values, tasks = policy.read(observation)
    memory = _run(engine, "context", {"tasks": tasks, **{key: values[key] for key in policy.observed.keys}})
    with torch.no_grad():
        context = policy.context(values, tasks)
        expected = [*FoldedMemory(policy.backbone.layers)(context), context]
    torch.testing.assert_close(memory, expected, atol=1e-4, rtol=1e-4)
    ids, lengths, state = torch.arange(40).reshape(5, 8), torch.tensor([8, 1, 2, 3, 4]), policy.current_state(values)
    assert state is not None
    tokens = {"ids": ids, "lengths": lengths, "times": torch.arange(7), "state": state}
    (actions,) = _run(engine, "actions", tokens)
    decoded = policy.tokenizer.decode(Tokens(ids, lengths), 7, state)
    torch.testing.assert_close(actions, decoded, atol=1e-4, rtol=1e-4)


_COMPARE_COMPILED = """
import sys
from oat.policies import load_policy
from oat.export.export import compare
from oat.export.loading import compile_policy
policy = load_policy(sys.argv[1])
agreement = compare(policy, compile_policy(policy), rows=3)
print(agreement.equal, agreement.largest)
"""


def test_compiled_graphs_are_the_same_too() -> None:
    """In a process of its own: the compiler does not understand the run-time type checks of tests."""
    command = [sys.executable, "-c", _COMPARE_COMPILED, str(exported("oat")[1].with_name("policy"))]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    equal, difference = map(float, done.stdout.split())
    assert equal == 1
    assert difference < 1e-5


def test_mistakes_are_told_as_by_the_policy() -> None:
    runtime = load_runtime(exported("oat")[1])
    with pytest.raises(UnknownName, match="Did you mean 'push'"):
        runtime.predict_chunk(Observation(observe(1).values, ("pusj",)))
    with pytest.raises(InvalidObservation, match="lacks 'observation"):
        runtime.predict_chunk(Observation({}, ("push",)))
    for decoding in (TokenDecoding(num_tokens=9), TokenDecoding(num_actions=17), Denoising()):
        with pytest.raises(InvalidOption):
            runtime.predict_chunk(observe(1), decoding)
    with pytest.raises(InvalidOption, match="Denoising"):
        load_runtime(exported("diffusion")[1]).predict_chunk(observe(1), TokenDecoding())


def test_fast_stays_in_python(tmp_path: Path) -> None:
    policy_of("fast").save(tmp_path / "policy")
    with pytest.raises(InvalidOption, match="ONNX cannot"):
        export_policy(tmp_path / "policy", tmp_path / "export")
    assert not (tmp_path / "export").exists()


def test_an_export_replaces_no_checkpoint(tmp_path: Path) -> None:
    """Not the policy that it is made of, in particular."""
    policy_of("diffusion").save(tmp_path / "run/best")
    weights = (tmp_path / "run/best/model.safetensors").read_bytes()
    for out, there in (("run/best", "holds 'diffusion'"), ("run", "is not a checkpoint")):
        with pytest.raises(CheckpointError, match=f"{there}; it is not overwritten by 'runtime'"):
            export_policy(tmp_path / "run", tmp_path / out)
    assert (tmp_path / "run/best/model.safetensors").read_bytes() == weights


def test_an_export_can_be_moved_and_tells_nothing_of_where_it_was_made(tmp_path: Path) -> None:
    policy, folder = exported("oat")
    moved = tmp_path / "elsewhere"
    shutil.copytree(folder, moved)
    assert json.loads((moved / "config.json").read_text())["trained_on"] == {"seed": 4}
    assert {path.name for path in moved.iterdir()} == {"config.json", *_FILES}
    found = load_predictor(moved).predict_chunk(observe(2))
    torch.testing.assert_close(found.actions, policy.predict_chunk(observe(2)).actions, atol=1e-5, rtol=1e-5)
    for path in moved.glob("*.onnx"):
        model = onnx.load(path)
        onnx.checker.check_model(model)
        assert b"site-packages" not in model.SerializeToString()


def test_damage_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "export"
    shutil.copytree(exported("oat")[1], folder)
    model = bytearray((folder / "step.onnx").read_bytes())
    model[len(model) // 2] ^= 1
    (folder / "step.onnx").write_bytes(model)
    with pytest.raises(CheckpointError, match="damaged"):
        load_runtime(folder)
    (folder / "step.onnx").unlink()
    with pytest.raises(CheckpointError, match="not a readable export"):
        load_runtime(folder)
    policy_of("diffusion").save(tmp_path / "checkpoint")
    with pytest.raises(CheckpointError, match="holds 'diffusion'"):
        load_runtime(tmp_path / "checkpoint")
    assert isinstance(load_predictor(tmp_path / "checkpoint"), DiffusionPolicy)


def test_a_graph_that_the_configuration_does_not_name_is_missed(tmp_path: Path) -> None:
    """Also where whoever took it out made the digest fit."""
    folder = tmp_path / "export"
    shutil.copytree(exported("quest")[1], folder)
    edit_config(folder, lambda config: [config["graphs_sha256"].pop(name) for name in ("step", "chunk")])
    with pytest.raises(CheckpointError, match=r"lacks the graph 'step', it holds context, actions"):
        load_runtime(folder).predict_chunk(observe(1))


@pytest.mark.parametrize("damage", ["", "{", "[]", '"runtime"', "{}"])
def test_a_damaged_configuration_is_told(damage: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(damage)
    for load in (load_predictor, load_runtime):
        with pytest.raises(CheckpointError, match="not a readable"):
            load(tmp_path)
