"""A policy in use, from whatever is on disk: an export, or a checkpoint, which can be compiled."""

import hashlib
from pathlib import Path

import torch
from torch import Tensor

from oat.errors import CheckpointError, InvalidOption
from oat.export.engines import OnnxEngine, TorchEngine
from oat.export.graph_policy import GraphPolicy, graph_class
from oat.io.checkpoints import CONFIG_FILE, checkpoint_kind, read_config
from oat.io.config_json import config_from_json
from oat.policies import POLICIES, BasePredictor, Policy, load_policy
from oat.policies.context import ContextConfig
from oat.tokenizers.space import ActionSpace

RUNTIME = "runtime"
"""The kind that config.json of an export tells."""


def load_predictor(path: Path, threads: int = 1, compiled: bool = False) -> BasePredictor:
    """Return an export, or a checkpoint or run, as it is or through PyTorch's compiler."""
    torch.set_num_threads(threads)
    if checkpoint_kind(path) == RUNTIME:
        if compiled:
            raise InvalidOption(f"{path} is an export, which PyTorch does not compile: leave out --compiled")
        return load_runtime(path, threads)
    policy = load_policy(path)
    return compile_policy(policy, "cuda" if torch.cuda.is_available() else "cpu") if compiled else policy


def load_runtime(path: str | Path, threads: int = 1) -> GraphPolicy:
    """Return a policy that `oat export` wrote, run by ONNX Runtime with this many threads."""
    folder = Path(path).expanduser()
    described = read_config(folder)
    if described["kind"] != RUNTIME:
        raise CheckpointError(f"{folder} holds {described['kind']!r}, expected {RUNTIME!r}")
    try:
        models = _read_models(folder, described["graphs_sha256"])
        context = config_from_json(ContextConfig, described["context"])
        space = config_from_json(ActionSpace, described["space"])
        graphs = graph_class(POLICIES.find(described["policy"]))
        shape = described["shape"]
        expected = graphs.input_shapes(context, space, shape)
        scale = torch.tensor([float(each) for each in described.get("action_scale", [1.0] * space.action_dim)])
        identity = described.get("identity")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{folder} is not a readable export ({type(error).__name__}: {error})") from error
    engine = OnnxEngine(models, threads)
    for name, found in engine.input_shapes():
        sizes = expected.get(name, ())
        # Free axes, such as the rows, come first.
        if sizes and found[-len(sizes) :] != sizes:
            raise CheckpointError(f"{folder}: the graphs' input {name} is {found}, {CONFIG_FILE} says {sizes}")
    if len(scale) != space.action_dim or not (scale > 0).all():
        raise CheckpointError(f"{folder}: action_scale must be {space.action_dim} positive numbers")
    return _identified(graphs.restore(context, space, engine, shape), identity, scale)


def _identified(policy: GraphPolicy, identity: str | None, scale: Tensor) -> GraphPolicy:
    policy.identity = identity
    policy.scale = scale
    return policy


def _read_models(folder: Path, digests: dict[str, str]) -> dict[str, bytes]:
    """Return the graphs that config.json names; raise `CheckpointError` for one that is not as it was saved."""
    models = {}
    for name, digest in digests.items():
        if not name.isidentifier():
            raise CheckpointError(f"{folder}: {name!r:.60} cannot be the name of a graph")
        models[name] = (folder / f"{name}.onnx").read_bytes()
        if hashlib.sha256(models[name]).hexdigest() != digest:
            raise CheckpointError(f"{folder / name}.onnx is damaged: its contents are not those that were saved")
    return models


def compile_policy(policy: Policy, device: str | torch.device = "cpu") -> GraphPolicy:
    """Return the same graphs run by PyTorch's compiler; on CUDA with CUDA graphs."""
    graphs = graph_class(type(policy))
    modules = {name: graph.module for name, graph in graphs.graphs_of(policy).items()}
    engine = TorchEngine(modules, torch.device(device))
    restored = graphs.restore(policy.observed, policy.space, engine, graphs.shape_of(policy))
    return _identified(restored, policy.identity, policy.action_scale.cpu())
