"""Diffusion policy on the same backbone: DDIM over normalised chunks (https://arxiv.org/abs/2303.04137)."""

import math
from collections.abc import Iterator
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from oat.data.normalize import Normalizer
from oat.errors import InvalidOption
from oat.nn.transformer import sinusoidal_positions
from oat.policies.context import ContextConfig, Values
from oat.policies.deadline import Pace
from oat.policies.decoding import Decoding, Denoising, Noise
from oat.policies.policy import Policy, PolicyConfig
from oat.policies.predictor import Chunk
from oat.tokenizers.decoder import masked_error
from oat.tokenizers.space import ActionSpace

TRAINING_STEPS = 100
_LARGEST_BETA = 0.999

Actions = Float[Tensor, "batch time dim"]


def signal_levels(steps: int = TRAINING_STEPS) -> Float[Tensor, " steps"]:
    """ᾱ_t of the squared-cosine schedule: how much of the signal's power is left after t + 1 noising steps."""

    def level(time: float) -> float:
        return math.cos((time + 0.008) / 1.008 * math.pi / 2) ** 2

    ratios = [max(level((t + 1) / steps) / level(t / steps), 1 - _LARGEST_BETA) for t in range(steps)]
    return torch.tensor(ratios, dtype=torch.float64).cumprod(0).float()


def add_noise(clean: Actions, noise: Actions, level: Float[Tensor, " batch"]) -> Actions:
    level = level[:, None, None]
    return level.sqrt() * clean + (1 - level).sqrt() * noise


def ddim_times(steps: int) -> list[int]:
    """The noise levels that are visited, from the noisiest, at equal distances."""
    return [number * (TRAINING_STEPS // steps) for number in reversed(range(steps))]


def ddim_step(
    noised: Actions, predicted_noise: Actions, now: Tensor, then: Tensor, low: Tensor, high: Tensor
) -> tuple[Actions, Actions]:
    """The sample at the next lower noise level and the clean chunk it heads for, which is kept within the range."""
    clean = ((noised - (1 - now).sqrt() * predicted_noise) / now.sqrt()).clamp(low, high)
    return then.sqrt() * clean + (1 - then).sqrt() * predicted_noise, clean


def check_denoising(decoding: Decoding) -> None:
    if not isinstance(decoding, Denoising):
        raise InvalidOption(f"a diffusion policy decodes by Denoising, got {decoding}")
    if decoding.steps > TRAINING_STEPS:
        raise InvalidOption(f"denoising steps must be 1…{TRAINING_STEPS}, got {decoding.steps}")


class DiffusionPolicy(Policy):
    """Predicts the noise in a noised chunk; the timestep is one more context token."""

    kind = "diffusion"
    levels: Tensor
    positions: Tensor
    times: Tensor

    def __init__(self, context: ContextConfig, space: ActionSpace, config: PolicyConfig | None = None) -> None:
        super().__init__(context, space, config or PolicyConfig())
        width = self.config.width.dim
        self.normalizer = Normalizer(space.model_dim)
        self.from_action, self.to_noise = nn.Linear(space.model_dim, width), nn.Linear(width, space.model_dim)
        self.from_time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        nn.init.zeros_(self.to_noise.weight)
        nn.init.zeros_(self.to_noise.bias)
        self.register_buffer("levels", signal_levels(), persistent=False)
        self.register_buffer("positions", sinusoidal_positions(space.action_horizon, width), persistent=False)
        self.register_buffer("times", sinusoidal_positions(TRAINING_STEPS, width), persistent=False)

    def forward(
        self,
        values: Values,
        tasks: Int64[Tensor, " batch"],
        actions: Actions,
        valid_mask: Bool[Tensor, "batch time"],
        generator: torch.Generator,
    ) -> Float[Tensor, " batch"]:
        """Each row's error of the predicted noise, over its valid steps; actions are in model space."""
        time = torch.randint(TRAINING_STEPS, (len(actions),), generator=generator).to(actions.device)
        noise = torch.randn(actions.shape, generator=generator).to(actions.device)
        context = self.context(values, tasks, generator)
        predicted = self.predict_noise(context, add_noise(actions, noise, self.levels[time]), time)
        return masked_error(predicted, noise, valid_mask)

    def predict_noise(
        self, context: Float[Tensor, "batch tokens width"], noised: Actions, time: Int64[Tensor, " batch"]
    ) -> Actions:
        memory = torch.cat([context, self.from_time(self.times[time])[:, None]], dim=1)
        return self.to_noise(self.backbone(self.from_action(noised) + self.positions, memory, causal=False))

    @property
    def action_normalizer(self) -> Normalizer:
        return self.normalizer

    @property
    def default_decoding(self) -> Denoising:
        return Denoising()

    def check_decoding(self, decoding: Decoding) -> None:
        check_denoising(decoding)

    @property
    def anytime(self) -> bool:
        return True

    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, pace: Pace
    ) -> Iterator[Chunk]:
        context, state = self.context(values, tasks), self.current_state(values)
        assert noise is not None
        sample = noise.normal(self.space.action_horizon, self.space.model_dim).to(context.device)
        times = ddim_times(decoding.steps)
        low, high = self.normalizer.low, self.normalizer.high
        one = torch.ones((), device=context.device)
        for number, time in enumerate(times, start=1):
            then = one if number == len(times) else self.levels[times[number]]
            predicted = self.predict_noise(context, sample, torch.full((len(sample),), time, device=sample.device))
            sample, clean = ddim_step(sample, predicted, self.levels[time], then, low, high)
            if pace.wants_chunk() or number == len(times):
                yield self._chunk(clean, number, state)

    def _chunk(self, clean: Actions, steps: int, state: Float[Tensor, "batch state"] | None) -> Chunk:
        actions = self.space.transform.inverse(self.normalizer.denormalize(clean), state)
        rows = len(actions)
        taken = torch.full((rows,), steps, device=actions.device)
        return Chunk(actions, torch.ones(rows, dtype=torch.bool, device=actions.device), taken)
