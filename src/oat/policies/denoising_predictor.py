"""The DDIM loop, which PyTorch's diffusion policy and exported ones share (https://arxiv.org/abs/2010.02502)."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from oat.errors import InvalidOption
from oat.policies.context import Values
from oat.policies.decoding import Decoding, DecodingOptions, Denoising
from oat.policies.predictor import BasePredictor, Chunk
from oat.policies.sampling import Noise
from oat.policies.stopping import StoppingRule

TRAINING_STEPS = 100
_LARGEST_BETA = 0.999

Actions = Float[Tensor, "batch time numbers"]
Samples = Float[Tensor, "samples time numbers"]
"""One or several of every row, one after the other."""
Denoise = Callable[[Any, int, Tensor, Tensor], tuple[Any, Any]]
"""From a sample, its time, its signal level and the next to the sample there and the clean chunk it heads for."""


def signal_levels(steps: int = TRAINING_STEPS) -> Float[Tensor, " steps"]:
    """Return ᾱ_t of the squared-cosine schedule: the share of the signal's power left after t + 1 noising steps."""

    def level(time: float) -> float:
        return math.cos((time + 0.008) / 1.008 * math.pi / 2) ** 2

    # Computed in double precision: the product of a hundred ratios near 1 loses digits otherwise.
    ratios = [max(level((t + 1) / steps) / level(t / steps), 1 - _LARGEST_BETA) for t in range(steps)]
    return torch.tensor(ratios, dtype=torch.float64).cumprod(0).float()


def ddim_times(steps: int) -> list[int]:
    """Return the noise levels that are visited, from the noisiest, at equal distances."""
    return [number * (TRAINING_STEPS // steps) for number in reversed(range(steps))]


def ddim_step(
    noised: Actions, predicted_noise: Actions, now: Tensor, then: Tensor, low: Tensor, high: Tensor
) -> tuple[Actions, Actions]:
    """Return the sample at the next lower noise level and the clean chunk it heads for, kept within the range."""
    clean = ((noised - (1 - now).sqrt() * predicted_noise) / now.sqrt()).clamp(low, high)
    return then.sqrt() * clean + (1 - then).sqrt() * predicted_noise, clean


def noise_in(noised: Actions, clean: Actions, level: Float[Tensor, "*batch"]) -> Actions:
    """Return the noise that makes a clean chunk the noised one: (noised - √ᾱ · clean) / √(1 - ᾱ)."""
    level = level[..., None, None]
    return (noised - level.sqrt() * clean) / (1 - level).sqrt()


class DenoisingPredictor(BasePredictor):
    """Denoise a random chunk step by step until the last one, or until a stopping rule wants a chunk."""

    options = frozenset({"denoising_steps", "samples", "choose", "commit"})
    has_no = "denoises actions and generates no tokens"
    levels: Tensor
    """The signal levels, on the device where samples are combined."""

    @abstractmethod
    def start_denoising(self, values: Values, tasks: Int64[Tensor, " batch"], noise: Samples) -> tuple[Any, Denoise]:
        """Read the observation, and return the first sample and the function that denoises it by one step.

        Noise may be for several samples of every row, one after the other: they share its context.
        """

    @abstractmethod
    def make_actions(self, clean: Any, values: Values) -> Actions:
        """Return a clean chunk in the robot's units."""

    @property
    def default_decoding(self) -> Denoising:
        return Denoising()

    def check_decoding(self, decoding: Decoding) -> None:
        """Raise `InvalidOption` for what is not denoising, or for more steps than training had."""
        if not isinstance(decoding, Denoising):
            raise InvalidOption(f"a diffusion policy decodes by Denoising, got {decoding}")
        if decoding.steps > TRAINING_STEPS:
            raise InvalidOption(f"denoising steps must be 1…{TRAINING_STEPS}, got {decoding.steps}")
        if decoding.samples > 1 and decoding.choose.needs_likelihood:
            raise InvalidOption(f"{decoding.choose.name} needs tokens: a denoised chunk has no likelihood")
        self.check_choosing(decoding)

    def make_decodings(self, options: DecodingOptions) -> Iterator[Denoising]:
        """Yield the only decoding that the options describe."""
        steps = Denoising.steps if options.denoising_steps is None else options.denoising_steps
        yield Denoising(steps, **options.choice)

    @property
    def anytime(self) -> bool:
        """Return True: every step heads for a clean chunk, which can be executed."""
        return True

    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, rule: StoppingRule
    ) -> Iterator[Chunk]:
        """Yield the chunk after the last step, and those before it that the rule wants."""
        assert noise is not None
        random = noise.repeated(decoding.samples).normal(self.space.action_horizon, self.space.model_dim)
        sample, denoise = self.start_denoising(values, tasks, random)
        values = self.repeat_reference(values, decoding.samples)
        times = ddim_times(decoding.steps)
        for number, time in enumerate(times, start=1):
            last = number == len(times)
            # After the last step all that is left is signal.
            then = torch.ones_like(self.levels[0]) if last else self.levels[times[number]]
            sample, clean = denoise(sample, time, self.levels[time], then)
            if rule.wants_chunk() or last:
                actions = self.make_actions(clean, values)
                valid = torch.ones(len(actions), dtype=torch.bool, device=actions.device)
                yield Chunk(actions, valid, torch.full((len(actions),), number, device=actions.device))
