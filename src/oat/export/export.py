"""Behind `oat export`: a policy as ONNX graphs and a config.json in a directory."""

import hashlib
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from oat.errors import CheckpointError
from oat.export.config import Precision
from oat.export.graph_policy import graph_class
from oat.export.graphs import Graph
from oat.export.loading import RUNTIME, load_runtime
from oat.io.checkpoints import VERSION, staged_checkpoint, write_config
from oat.io.config_json import config_to_json
from oat.io.extras import import_extra
from oat.policies import BasePredictor, Noise, Policy, TokenDecoding, load_policy
from oat.policies.decoding import Decoding
from oat.policies.token_predictor import TokenPredictor

_OPSET = 20
_CHECKED = 256  # random observations on which an export is held against its policy
_MUST_AGREE = 0.99  # the last bits of sums decide a token once in many thousands
_MAY_DIFFER = 1e-3


@dataclass(frozen=True)
class Agreement:
    """How far two policies agree on the same observations and noise."""

    equal: float
    """The share of chunks with equal tokens."""
    largest: float
    """The largest difference of those chunks' actions, relative to the largest action."""
    mean: float
    """The mean difference of all chunks' actions, relative likewise."""

    def __str__(self) -> str:
        return (
            f"{self.equal:.1%} of chunks have the same tokens, with actions that differ by at most {self.largest:.0e} "
            f"of the largest; over all chunks the mean difference is {self.mean:.0e} of it"
        )


def export_policy(path: Path, out: Path, precision: Precision = "float32", threads: int = 1) -> None:
    """Write the policy of a checkpoint or run to `out`, and make sure that the copy agrees with it."""
    torch.set_num_threads(threads)
    policy = load_policy(path)
    with staged_checkpoint(out, RUNTIME) as staging:
        write_graphs(policy, staging, precision)
        runtime = load_runtime(staging, threads)
        agreement, *others = (compare(policy, runtime, decoding) for decoding in _checked_decodings(policy))
        for each in (agreement, *others):
            if precision == "float32" and (each.equal < _MUST_AGREE or each.largest > _MAY_DIFFER):
                raise CheckpointError(f"the exported graphs do not agree with {path}, nothing was written: {each}")
    Console(soft_wrap=True).print(f"{out}: on {_CHECKED} random observations {agreement}")


def write_graphs(policy: Policy, folder: Path, precision: Precision = "float32") -> None:
    """Write config.json and one ONNX file per graph into an existing directory."""
    graphs = graph_class(type(policy))
    models = {name: to_onnx(graph) for name, graph in graphs.graphs_of(policy).items()}
    if precision == "int8":
        # Before graphs are joined, so that the joined one has the small weights, too.
        models |= {name: to_int8(models[name]) for name in graphs.quantized}
    shape = graphs.shape_of(policy)
    models |= graphs.join(models, shape)
    for name, model in models.items():
        (folder / f"{name}.onnx").write_bytes(model)
    described = {
        **{"format": "oat", "version": VERSION, "kind": RUNTIME, "policy": policy.kind},
        "graphs_sha256": {name: hashlib.sha256(model).hexdigest() for name, model in models.items()},
        "context": config_to_json(policy.observed),
        "space": config_to_json(policy.space),
        "shape": shape,
        "trained_on": policy.training_record.to_json(),
        # A stopping head's bound holds for the weights that it was calibrated with.
        "identity": policy.identity if precision == "float32" else None,
        "action_scale": policy.action_scale.tolist(),
    }
    write_config(folder, described)


def _checked_decodings(policy: Policy) -> list[Decoding]:
    """Return how the policy usually decodes, and where it has a remainder the same with it or without."""
    usual = policy.default_decoding
    if isinstance(usual, TokenDecoding) and isinstance(policy, TokenPredictor) and policy.limits.remainder:
        return [usual, replace(usual, remainder=not usual.remainder)]
    return [usual]


def compare(
    first: BasePredictor,
    second: BasePredictor,
    decoding: Decoding | None = None,
    rows: int = _CHECKED,
    seed: int = 0,
) -> Agreement:
    """Return how far two policies agree on the same random observations, decoding as usual or otherwise."""
    observation = first.random_observation(rows, seed)
    noise = Noise.of([seed] * rows, range(rows))
    one, other = (policy.predict_chunk(observation, decoding, noise) for policy in (first, second))
    equal = torch.ones(rows, dtype=torch.bool)
    if one.tokens is not None and other.tokens is not None:
        equal = (one.tokens.ids == other.tokens.ids).all(1)
    difference = (one.actions - other.actions).abs() / one.actions.abs().max()
    largest = difference[equal].max() if equal.any() else torch.tensor(torch.nan)
    return Agreement(float(equal.float().mean()), float(largest), float(difference.mean()))


def to_onnx(graph: Graph) -> bytes:
    """Return a graph as the contents of an ONNX file, without anything about the machine it was made on."""
    import_extra("onnxscript", "export")
    batch = torch.export.Dim.DYNAMIC
    free = {
        name: batch if isinstance(value, int) else {0: batch} if value.ndim and len(value) > 1 else None
        for name, value in graph.inputs.items()
    }
    shapes: Any = tuple(free.values())
    if graph.variadic_from is not None:
        shapes = (*shapes[: graph.variadic_from], shapes[graph.variadic_from :])
    with _quiet():
        program = torch.onnx.export(
            graph.module.eval(),
            tuple(value if isinstance(value, int) else value.contiguous() for value in graph.inputs.values()),
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
            dynamic_shapes=shapes,
            opset_version=_OPSET,
            dynamo=True,
            verbose=False,
            external_data=False,
        )
    assert program is not None
    model = program.model_proto
    for part in (*model.graph.node, *model.graph.input, *model.graph.output):
        del part.metadata_props[:]  # where in the exporter's source code a node comes from
    del model.graph.metadata_props[:], model.metadata_props[:], model.graph.value_info[:]
    _name_axes(model.graph)
    return model.SerializeToString()


def to_int8(model: bytes) -> bytes:
    """Return the same graph with the weights of its products as 8-bit numbers, each block of 64 with its scale.

    Products are of 8-bit numbers, too. A token's time is mostly that of reading the weights, of which there are then a
    quarter.
    """
    onnx = import_extra("onnx", "export")
    library = import_extra("onnxruntime.quantization.matmul_nbits_quantizer", "export")
    with _quiet():
        quantizer = library.MatMulNBitsQuantizer(
            onnx.load_from_string(model), bits=8, block_size=64, is_symmetric=True, accuracy_level=4
        )
        quantizer.process()
    return quantizer.model.model.SerializeToString()


def _name_axes(graph: Any) -> None:
    """Name the free axes: the exporter's own names mean one thing in one graph, another in the next."""
    names = {}
    for value in graph.input:
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                names[axis.dim_param] = axis.dim_param = "steps" if value.name == "times" else "rows"
    for value in graph.output:
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param:
                axis.dim_param = names.get(axis.dim_param, axis.dim_param)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter, which warns of its own deprecated calls, of axes' names and of packages it does without."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnxruntime.quantization")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*LeafSpec.*", FutureWarning)
            warnings.filterwarnings("ignore", "# The axis name", UserWarning)
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
