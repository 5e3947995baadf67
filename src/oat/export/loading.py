"""A policy in use, from whatever is on disk: an export, or a checkpoint, which can be compiled."""

import hashlib
import json
from pathlib import Path

import torch

from oat.errors import CheckpointError, InvalidOption
from oat.export.engines import Engine, OnnxEngine, TorchEngine
from oat.export.graph_policies import GraphDiffusionPolicy, GraphPolicy, GraphTokenPolicy, TokenShape
from oat.export.graphs import make_graphs
from oat.io.checkpoints import CONFIG_FILE, VERSION, checkpoint_kind, config_from_json
from oat.policies import AutoregressivePolicy, ChunkPredictor, Policy, load_policy
from oat.policies.context import ContextConfig
from oat.tokenizers.space import ActionSpace

RUNTIME = "runtime"
"""The kind that config.json of an export tells."""


def load_predictor(path: Path, threads: int = 1, compiled: bool = False) -> ChunkPredictor:
    """An export, or a checkpoint or run, as it is or through PyTorch's compiler."""
    torch.set_num_threads(threads)
    if checkpoint_kind(path) == RUNTIME:
        if compiled:
            raise InvalidOption(f"{path} is an export, which PyTorch does not compile: leave out --compiled")
        return load_runtime(path, threads)
    policy = load_policy(path)
    return compile_policy(policy, "cuda" if torch.cuda.is_available() else "cpu") if compiled else policy


def load_runtime(path: str | Path, threads: int = 1) -> GraphPolicy:
    """A policy that `oat export` wrote, run by ONNX Runtime with this many threads."""
    folder = Path(path).expanduser()
    try:
        described = json.loads((folder / CONFIG_FILE).read_text())
        kind, version, hashes = described["kind"], described["version"], described.get("graphs_sha256", {})
        if kind != RUNTIME or version != VERSION:
            raise CheckpointError(f"{folder} holds {kind!r} of version {version}, expected {RUNTIME!r} of {VERSION}")
        models = {name: (folder / f"{name}.onnx").read_bytes() for name in hashes}
        for name, model in models.items():
            if hashlib.sha256(model).hexdigest() != hashes[name]:
                raise CheckpointError(f"{folder / name}.onnx is damaged: its contents are not those that were saved")
        context = config_from_json(ContextConfig, described["context"])
        space, shape = config_from_json(ActionSpace, described["space"]), described["shape"]
        return _make_policy(context, space, None if shape is None else TokenShape(**shape), OnnxEngine(models, threads))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder} is not a readable export ({type(error).__name__}: {error})") from error


def compile_policy(policy: Policy, device: str | torch.device = "cpu") -> GraphPolicy:
    """The same graphs run by PyTorch's compiler; on CUDA with CUDA graphs."""
    modules = {name: graph.module for name, graph in make_graphs(policy).items()}
    shape = TokenShape.of(policy) if isinstance(policy, AutoregressivePolicy) else None
    return _make_policy(policy.observed, policy.space, shape, TorchEngine(modules, torch.device(device)))


def _make_policy(context: ContextConfig, space: ActionSpace, shape: TokenShape | None, engine: Engine) -> GraphPolicy:
    if shape is None:
        return GraphDiffusionPolicy(context, space, engine)
    return GraphTokenPolicy(context, space, engine, shape)
