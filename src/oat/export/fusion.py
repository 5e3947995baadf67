"""A whole chunk as one ONNX graph: context, a loop over token steps, actions; for every number of tokens.

Between two steps nothing returns to Python, which saves about a tenth of a chunk's time at batch 1.
"""

from collections.abc import Mapping
from typing import Any

from oat.io.extras import import_extra

# What surrounds the three graphs. Its inputs stand for more: the observations, and what the actions need.
_CHUNK = """
chunk (int64[rows] tasks, float[tokens, rows, {outputs}] noise, float temperature, int64 top_k)
    => (int64[rows, tokens] tokens, float[rows, tokens] log_probabilities)
{{
    rows = Shape (tasks)
    count = Shape <start = 0, end = 1> (noise)
    trips = Squeeze (count)
    bos = Constant <value_ints = [{outputs}]> ()
    first = Expand (bos, rows)
    cache_sizes = Constant <value_ints = [{cache_heads}, {longest}, {head_dim}]> ()
    cache_shape = Concat <axis = 0> (rows, cache_sizes)
    empty = ConstantOfShape (cache_shape)
    last_token, last_cache, chosen, likely = Loop (trips, , first, empty)
    tokens = Transpose <perm = [1, 0]> (chosen)
    log_probabilities = Transpose <perm = [1, 0]> (likely)
    longest = Constant <value_ints = [{longest}]> ()
    missing = Sub (longest, count)
    no_pads = Constant <value_ints = [0, 0, 0]> ()
    pads = Concat <axis = 0> (no_pads, missing)
    ids = Pad (tokens, pads)
    lengths = Expand (count, rows)
}}
"""

# What surrounds a step in the loop.
_STEP = """
step (int64 number, bool go, int64[rows] last, float[rows, {cache_heads}, {longest}, {head_dim}] cache)
    => (bool go_on, int64[rows] token, float[rows, {cache_heads}, {longest}, {head_dim}] cache_then,
        int64[rows] token_now, float[rows] log_probability)
{{
    go_on = Identity (go)
    one = Constant <value_ints = [1]> ()
    place = Reshape (number, one)
    noise_now = Gather <axis = 0> (noise, number)
    token_now = Identity (token)
}}
"""


def fuse(models: Mapping[str, bytes], shape: Mapping[str, Any]) -> bytes:
    """Return the graphs of a next-token policy as one; the length of its noise tells how many tokens to generate."""
    onnx = import_extra("onnx", "export")
    parser = import_extra("onnx.parser", "export")
    parts = {name: onnx.load_from_string(model) for name, model in models.items()}
    context, step, actions = (_own_names(parts[name].graph, name) for name in ("context", "step", "actions"))
    chunk, body = (parser.parse_graph(text.format(**shape)) for text in (_CHUNK, _STEP))
    before = [node.op_type for node in body.node].index("Gather") + 1
    _insert(body.node, before, step.node)
    loop = [node.op_type for node in chunk.node].index("Loop")
    chunk.node[loop].attribute.append(onnx.helper.make_attribute("body", body))
    _insert(chunk.node, loop, context.node)
    chunk.node.extend(actions.node)
    for part in (context, step, actions):
        chunk.initializer.extend(part.initializer)
    # What the actions read may be an input of the whole, or something that was computed on the way.
    given = {value.name for value in (*chunk.input, *chunk.output, *context.output)} | {"ids", "lengths"}
    chunk.input.extend(value for value in (*context.input, *actions.input) if value.name not in given)
    chunk.output.extend(actions.output)
    model = parts["step"]
    fused = onnx.helper.make_model(chunk, opset_imports=model.opset_import, ir_version=model.ir_version)
    onnx.checker.check_model(fused)
    return fused.SerializeToString()


def _own_names(graph: Any, prefix: str) -> Any:
    """Return the graph with its inner names made its own; by those of inputs and outputs the graphs are joined."""
    public = {value.name: value.name for value in (*graph.input, *graph.output)}
    public |= {"noise": "noise_now", "": ""}  # one step's noise is not the whole chunk's
    for node in graph.node:
        node.input[:] = [public.get(name, f"{prefix}/{name}") for name in node.input]
        node.output[:] = [public.get(name, f"{prefix}/{name}") for name in node.output]
        node.name = f"{prefix}/{node.name}"
    for tensor in graph.initializer:
        tensor.name = f"{prefix}/{tensor.name}"
    return graph


def _insert(nodes: Any, place: int, more: Any) -> None:
    """Insert several nodes into a list that protobuf keeps, which cannot do it at once."""
    together = [*nodes[:place], *more, *nodes[place:]]
    del nodes[:]
    nodes.extend(together)
