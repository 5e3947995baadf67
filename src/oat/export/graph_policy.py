"""Policies that run as graphs in an engine: the same chunks as the PyTorch policy for the same noise."""

from abc import abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from oat.errors import InvalidOption, unknown_name
from oat.export.engines import Engine
from oat.export.graphs import Graph
from oat.interfaces import Observation
from oat.policies.context import ContextConfig, Values, read_values
from oat.policies.policy import Policy
from oat.policies.predictor import BasePredictor
from oat.tokenizers.space import ActionSpace


class GraphPolicy(BasePredictor):
    """Hold a kind's graphs and run them; what needs no weights is done here.

    A kind of policy names its class in `exported_as`.
    """

    quantized: ClassVar[tuple[str, ...]] = ("step",)
    """The graphs whose weights may have 8 bits."""

    def __init__(self, context: ContextConfig, space: ActionSpace, engine: Engine) -> None:
        self.space = space
        self.engine = engine
        self.scale = torch.ones(space.action_dim)
        """What distances between actions are measured in; exports of before do not know it."""
        self._context = context

    @classmethod
    @abstractmethod
    def graphs_of(cls, policy: Any) -> dict[str, Graph]:
        """Return the policy as graphs by name."""

    @classmethod
    def shape_of(cls, policy: Any) -> dict[str, Any] | None:
        """Return what running the graphs needs to know beside context and action space, as JSON-able values."""
        return None

    @classmethod
    def join(cls, models: Mapping[str, bytes], shape: Mapping[str, Any] | None) -> dict[str, bytes]:
        """Return further ONNX graphs, made of the first ones."""
        return {}

    @classmethod
    def input_shapes(
        cls, context: ContextConfig, space: ActionSpace, shape: Mapping[str, Any] | None
    ) -> dict[str, tuple[int, ...]]:
        """Return the last axes that config.json gives to inputs of the graphs: a loaded graph must have the same."""
        return {key: (context.obs_horizon, *size) for key, size in context.sizes().items()}

    @classmethod
    def restore(
        cls, context: ContextConfig, space: ActionSpace, engine: Engine, shape: Mapping[str, Any] | None
    ) -> "GraphPolicy":
        """Return what runs the graphs of an engine, with the shape that `shape_of` gave."""
        return cls(context, space, engine)

    @property
    def observed(self) -> ContextConfig:
        return self._context

    @property
    def action_scale(self) -> Float[Tensor, " dim"]:
        return self.scale

    def read(self, observation: Observation) -> tuple[Values, Int64[Tensor, " batch"]]:
        """Return an observation and its tasks' numbers, which must be among those known at export."""
        values = read_values(self._context, observation, self.reference)
        known = self._context.tasks
        for task in observation.tasks:
            if task not in known:
                raise unknown_name("task", task, known)
        return values, torch.tensor([known.index(task) for task in observation.tasks])

    def inferring(self) -> AbstractContextManager[None]:
        """Compute without gradients, which engines do not have."""
        return torch.no_grad()

    def memory(self, values: Values, tasks: Int64[Tensor, " batch"]) -> dict[str, Any]:
        """Run the context graph, and return the keys and values that every step reads."""
        keys, memory, _ = self.encode_context(values, tasks)
        return {"keys": keys, "values": memory}

    def encode_context(self, values: Values, tasks: Int64[Tensor, " batch"]) -> tuple[Any, Any, Any]:
        """Run the context graph, and return the keys, the values and the context, as values of the engine's."""
        seen = {key: self.engine.put(values[key]) for key in self._context.keys}
        # Exports of before know no context: what they run needs none.
        keys, memory, *context = self.engine.run("context", {"tasks": self.engine.put(tasks), **seen})
        return keys, memory, next(iter(context), None)

    def repeat_rows(self, inputs: Mapping[str, Any], times: int) -> dict[str, Any]:
        """Return values of the engine's with every row several times, one after the other."""
        if times == 1:
            return dict(inputs)
        return {
            name: self.engine.put(self.engine.get(value).repeat_interleave(times, 0)) for name, value in inputs.items()
        }

    def actions(
        self, values: Values, inputs: Mapping[str, Tensor], also: Mapping[str, Any] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        """Run the actions graph, with the state where the action transform refers to it; `also` is the engine's."""
        put = self.engine.put
        given = {name: put(tensor) for name, tensor in inputs.items()}
        state = {name: put(tensor) for name, tensor in self.state_input(values).items()}
        (actions,) = self.engine.run("actions", {**given, **(also or {}), **state})
        return self.engine.get(actions)

    def state_input(self, values: Values) -> dict[str, Tensor]:
        """Return the state as an input of the actions graph, if the action transform refers to it."""
        state = self.current_state(values)
        return {} if state is None else {"state": state}


def graph_class(kind: type[Policy]) -> type[GraphPolicy]:
    """Return the class that holds the graphs of a kind of policy, or raise `InvalidOption` where there is none."""
    if kind.exported_as is None:
        raise InvalidOption(f"policies of the kind {kind.kind} are not exported: use the checkpoint")
    module, name = kind.exported_as.split(":")
    found: type[GraphPolicy] = getattr(import_module(module), name)
    return found
