"""Diffusion policy on the same backbone: DDIM over normalised chunks (https://arxiv.org/abs/2303.04137)."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from oat.data.normalize import Normalizer
from oat.nn.transformer import sinusoidal_positions
from oat.policies.config import DiffusionConfig, PolicyConfig
from oat.policies.context import ContextConfig, Values
from oat.policies.denoising_predictor import (
    TRAINING_STEPS,
    Actions,
    Denoise,
    DenoisingPredictor,
    Samples,
    ddim_step,
    noise_in,
    signal_levels,
)
from oat.policies.learning import Lesson, PolicySetup
from oat.policies.policy import Policy
from oat.tokenizers.decoder import masked_error
from oat.tokenizers.space import ActionSpace


def add_noise(clean: Actions, noise: Actions, level: Float[Tensor, " batch"]) -> Actions:
    """Return √ᾱ · clean + √(1 - ᾱ) · noise, with each row's signal level ᾱ."""
    level = level[:, None, None]
    return level.sqrt() * clean + (1 - level).sqrt() * noise


class DiffusionPolicy(DenoisingPredictor, Policy):
    """Predict the noise in a noised chunk, or the chunk without it; the timestep is one more context token."""

    kind = "diffusion"
    config_class = DiffusionConfig
    config: DiffusionConfig
    exported_as = "oat.export.diffusion_graphs:GraphDiffusionPolicy"
    positions: Tensor
    times: Tensor

    def __init__(self, context: ContextConfig, space: ActionSpace, config: PolicyConfig | None = None) -> None:
        super().__init__(context, space, config or DiffusionConfig())
        width = self.config.width.dim
        self.normalizer = Normalizer(space.model_dim)
        self.from_action = nn.Linear(space.model_dim, width)
        self.to_noise = nn.Linear(width, space.model_dim)
        self.from_time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        # An untrained policy predicts zeros, so that the first losses are those of the data.
        nn.init.zeros_(self.to_noise.weight)
        nn.init.zeros_(self.to_noise.bias)
        self.register_buffer("levels", signal_levels(), persistent=False)
        self.register_buffer("positions", sinusoidal_positions(space.action_horizon, width), persistent=False)
        self.register_buffer("times", sinusoidal_positions(TRAINING_STEPS, width), persistent=False)

    @classmethod
    def for_training(cls, setup: PolicySetup, config: PolicyConfig) -> "DiffusionPolicy":
        """Return a policy with random weights that normalises actions as these data need."""
        policy = cls(setup.context, setup.space, config)
        policy.normalizer = setup.normalizer
        return policy

    @property
    def method(self) -> str:
        """Return the name that the paper's tables have for diffusion policy."""
        return "dp"

    def forward(
        self,
        values: Values,
        tasks: Int64[Tensor, " batch"],
        actions: Actions,
        valid_mask: Bool[Tensor, "batch time"],
        generator: torch.Generator,
    ) -> Float[Tensor, " batch"]:
        """Return each row's error of what is predicted, over its valid steps; actions are in model space."""
        time = torch.randint(TRAINING_STEPS, (len(actions),), generator=generator).to(actions.device)
        noise = torch.randn(actions.shape, generator=generator).to(actions.device)
        context = self.context(values, tasks, generator)
        predicted = self._predict(context, add_noise(actions, noise, self.levels[time]), time)
        return masked_error(predicted, noise if self.config.predicts == "noise" else actions, valid_mask)

    def predict_noise(
        self, context: Float[Tensor, "batch tokens width"], noised: Actions, time: Int64[Tensor, " batch"]
    ) -> Actions:
        """Return what the policy takes for the noise in a chunk that was noised up to a time."""
        predicted = self._predict(context, noised, time)
        return predicted if self.config.predicts == "noise" else noise_in(noised, predicted, self.levels[time])

    def _predict(
        self, context: Float[Tensor, "batch tokens width"], noised: Actions, time: Int64[Tensor, " batch"]
    ) -> Actions:
        """Return the network's output, which is noise or a clean chunk."""
        memory = torch.cat([context, self.from_time(self.times[time])[:, None]], dim=1)
        return self.to_noise(self.backbone(self.from_action(noised) + self.positions, memory, causal=False))

    def loss(
        self, module: Callable[..., Any], lesson: Lesson, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the mean error of what is predicted."""
        errors = module(lesson.values, lesson.tasks, lesson.actions, lesson.valid_mask, generator)
        return errors.mean(), {}

    @property
    def action_normalizer(self) -> Normalizer:
        return self.normalizer

    def start_denoising(
        self, values: Values, tasks: Int64[Tensor, " batch"], noise: Samples
    ) -> tuple[Samples, Denoise]:
        """Encode the observation once; every step predicts noise from it."""
        context = self.context(values, tasks).repeat_interleave(len(noise) // len(tasks), 0)

        def denoise(sample: Actions, time: int, now: Tensor, then: Tensor) -> tuple[Actions, Actions]:
            times = torch.full((len(sample),), time, device=sample.device)
            predicted = self.predict_noise(context, sample, times)
            return ddim_step(sample, predicted, now, then, self.normalizer.low, self.normalizer.high)

        return noise.to(context.device), denoise

    def make_actions(self, clean: Actions, values: Values) -> Actions:
        """Return a clean chunk in the robot's units, undoing normalisation and transform."""
        return self.space.transform.inverse(self.normalizer.denormalize(clean), self.current_state(values))
