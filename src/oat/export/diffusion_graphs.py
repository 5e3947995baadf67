"""Diffusion policies as graphs: one denoising step, and a clean chunk → actions."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat.export.engines import Engine
from oat.export.folded_blocks import FoldedBlocks, FoldedMemory, Keys
from oat.export.folded_blocks import Values as FoldedValues
from oat.export.graph_policy import GraphPolicy
from oat.export.graphs import ROWS, Graph, context_graph, example_memory, example_state
from oat.policies.context import ContextConfig, Values
from oat.policies.denoising_predictor import (
    Actions,
    Denoise,
    DenoisingPredictor,
    Samples,
    ddim_step,
    noise_in,
    signal_levels,
)
from oat.policies.diffusion import DiffusionPolicy
from oat.tokenizers.space import ActionSpace


class DenoisingStep(nn.Module):
    """Take one DDIM step; what the blocks make of the timestep's token is computed in advance."""

    positions: Tensor
    time_keys: Tensor
    time_values: Tensor
    low: Tensor
    high: Tensor

    def __init__(self, policy: DiffusionPolicy) -> None:
        super().__init__()
        self.from_action = policy.from_action
        self.blocks = FoldedBlocks(policy.backbone.layers)
        self.norm = policy.backbone.norm
        self.to_noise = policy.to_noise
        self.predicts = policy.config.predicts
        memory = FoldedMemory(policy.backbone.layers)
        with torch.no_grad():
            keys, values = memory(policy.from_time(policy.times)[:, None])
        buffers = {"positions": policy.positions, "time_keys": keys, "time_values": values}
        buffers |= {"low": policy.normalizer.low, "high": policy.normalizer.high}
        for name, buffer in buffers.items():
            self.register_buffer(name, buffer)

    def forward(
        self,
        sample: Actions,
        time: Int64[Tensor, "1"],
        now: Float[Tensor, ""],
        then: Float[Tensor, ""],
        keys: Keys,
        values: FoldedValues,
    ) -> tuple[Actions, Actions]:
        """Return the sample at the next lower noise level, and the clean chunk it heads for."""
        rows = sample.shape[0]  # len() would make it a constant of the graph
        keys = torch.cat([keys, self.time_keys[time].expand(rows, -1, -1, -1)], dim=3)
        values = torch.cat([values, self.time_values[time].expand(rows, -1, -1, -1)], dim=2)
        x = self.from_action(sample) + self.positions
        for block, memory in self.blocks.with_memory(keys, values):
            x = block.read(block.mix(x, *block.project(x)), *memory)
        predicted = self.to_noise(self.norm(x))
        noise = predicted if self.predicts == "noise" else noise_in(sample, predicted, now)
        return ddim_step(sample, noise, now, then, self.low, self.high)


class DenoisedActions(nn.Module):
    """Bring a clean chunk to the robot's units."""

    def __init__(self, policy: DiffusionPolicy) -> None:
        super().__init__()
        self.normalizer = policy.normalizer
        self.transform = policy.space.transform

    def forward(self, clean: Actions, state: Float[Tensor, "batch state"] | None = None) -> Actions:
        """Return the actions; the state is given where the transform refers to it."""
        return self.transform.inverse(self.normalizer.denormalize(clean), state)


class GraphDiffusionPolicy(DenoisingPredictor, GraphPolicy):
    """Denoise chunks by DDIM steps that are graphs."""

    kind = DiffusionPolicy.kind

    def __init__(self, context: ContextConfig, space: ActionSpace, engine: Engine) -> None:
        super().__init__(context, space, engine)
        self.levels = signal_levels()

    @classmethod
    def graphs_of(cls, policy: DiffusionPolicy) -> dict[str, Graph]:
        """Return the policy as context, step and actions."""
        context = context_graph(policy)
        chunk = torch.zeros(ROWS, policy.space.action_horizon, policy.space.model_dim)
        times = {"time": torch.tensor([0]), "now": torch.ones(()), "then": torch.ones(())}
        step = {"sample": chunk, **times, **example_memory(context)}
        return {
            "context": context,
            "step": Graph(DenoisingStep(policy), step, ("sample_then", "clean")),
            "actions": Graph(DenoisedActions(policy), {"clean": chunk, **example_state(policy)}, ("actions",)),
        }

    @classmethod
    def input_shapes(
        cls, context: ContextConfig, space: ActionSpace, shape: Mapping[str, Any] | None
    ) -> dict[str, tuple[int, ...]]:
        """Return the sizes of what is observed and of the chunk that is denoised."""
        return {**super().input_shapes(context, space, shape), "sample": (space.action_horizon, space.model_dim)}

    def start_denoising(self, values: Values, tasks: Int64[Tensor, " batch"], noise: Samples) -> tuple[Any, Denoise]:
        """Run the context graph, and return the function that runs a step for every noise level."""
        put = self.engine.put
        memory = self.repeat_rows(self.memory(values, tasks), len(noise) // len(tasks))

        def denoise(sample: Any, time: int, now: Tensor, then: Tensor) -> tuple[Any, Any]:
            inputs = {"time": put(torch.tensor([time])), "now": put(now), "then": put(then)}
            sample, clean = self.engine.run("step", {"sample": sample, **inputs, **memory})
            return sample, clean

        return put(noise), denoise

    def make_actions(self, clean: Any, values: Values) -> Actions:
        """Run the actions graph on a clean chunk."""
        return self.actions(values, {"clean": self.engine.get(clean)})
