"""Regression policies as one graph: observations → actions."""

from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat.export.folded_blocks import FoldedBlocks
from oat.export.graph_policy import GraphPolicy
from oat.export.graphs import ContextGraph, Graph, context_graph, example_state
from oat.policies.context import Values
from oat.policies.regression import RegressionPolicy, RegressionPredictor


class RegressionGraph(nn.Module):
    """Predict a chunk from tasks, observations in the order of the context's keys, and a state where one is needed."""

    queries: Tensor

    def __init__(self, policy: RegressionPolicy) -> None:
        super().__init__()
        self.observed = len(policy.observed.keys)
        self.space = policy.space
        self.context = ContextGraph(policy)
        self.blocks = FoldedBlocks(policy.backbone.layers)
        self.norm = policy.backbone.norm
        self.head = policy.head
        self.normalizer = policy.normalizer
        self.register_buffer("queries", policy.queries.detach())

    def forward(self, tasks: Int64[Tensor, " batch"], *inputs: Tensor) -> Float[Tensor, "batch time action"]:
        """Return the actions; the state that the transform refers to comes after the observations."""
        keys, values, _ = self.context(tasks, *inputs[: self.observed])
        rows = tasks.shape[0]  # len() would make it a constant of the graph
        x = self.queries.expand(rows, -1, -1)
        for block, memory in self.blocks.with_memory(keys, values):
            x = block.read(block.mix(x, *block.project(x)), *memory)
        predicted = self.head(self.norm(x)).reshape(rows, self.space.action_horizon, self.space.model_dim)
        state = inputs[self.observed] if len(inputs) > self.observed else None
        return self.space.to_actions(predicted, self.normalizer, state)


class GraphRegressionPolicy(RegressionPredictor, GraphPolicy):
    """Predict chunks by a single run of a single graph."""

    kind = RegressionPolicy.kind
    quantized = ("chunk",)

    @classmethod
    def graphs_of(cls, policy: RegressionPolicy) -> dict[str, Graph]:
        """Return the policy as one graph, because no part of it is run more than once."""
        inputs = {**context_graph(policy).inputs, **example_state(policy)}
        return {"chunk": Graph(RegressionGraph(policy), inputs, ("actions",), variadic_from=1)}

    def predict_actions(self, values: Values, tasks: Int64[Tensor, " batch"]) -> Float[Tensor, "batch time action"]:
        """Run the graph."""
        seen = {key: values[key] for key in self.observed.keys}
        given = {"tasks": tasks, **seen, **self.state_input(values)}
        (actions,) = self.engine.run("chunk", {name: self.engine.put(tensor) for name, tensor in given.items()})
        return self.engine.get(actions)
