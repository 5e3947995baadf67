"""Demonstrate a robosuite task with a script: a generator of actions that looks at the simulator's own poses."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from oat.interfaces import Demonstration
from oat.sims.hand import Actions, Manner
from oat.sims.robosuite import RobosuiteEnv

Script = Callable[[Any, Manner], Actions]
"""From a robosuite environment and a manner to the actions of one attempt."""


_PATIENCE = 3  # policies hesitate and try again


def step_limit(mean_length: float, own: int) -> int:
    """Return how many steps an episode may take, from how many experts take and how many the benchmark itself allows.

    `mean_length` is the mean over experts' successes in the slowest task (results/experts.md). Three times as much, in
    whole hundreds, is enough for whoever succeeds at all, and what is beyond it costs hours of simulating failures.
    A benchmark has one limit here; where it has several itself, `own` is the largest: beyond it nothing is comparable.
    """
    return min(own, 100 * round(_PATIENCE * mean_length / 100))


class ScriptedExpert:
    """Demonstrate a task with its script, until it has succeeded or the time is over."""

    def __init__(
        self,
        env: RobosuiteEnv,
        begin: Callable[[int], Mapping[str, np.ndarray]],
        script: Script,
        noise: float,
        max_steps: int,
        held_steps: int = 1,
    ) -> None:
        """Take an environment, and what begins an episode for a seed; success has to hold for `held_steps`."""
        self._env = env
        self._begin = begin
        self._script = script
        self._noise = noise
        self._max_steps = max_steps
        self._held_steps = held_steps

    def demonstrate(self, seed: int) -> Demonstration:
        """Make one attempt, whose scene, manner and noise the seed determines."""
        observations = [self._begin(seed)]
        # [seed, 1] and not the seed: the noise must not repeat the numbers that the manner is drawn from.
        noise = self._noise * np.random.default_rng([seed, 1]).normal(size=(self._max_steps, self._env.env.action_dim))
        actions: list[np.ndarray] = []
        held = 0
        for wanted, disturbance in zip(self._script(self._env.env, Manner.draw(seed)), noise):
            action = np.clip(wanted + disturbance, -1, 1).astype(np.float32)
            outcome = self._env.step(action)
            actions.append(action)
            held = held + 1 if outcome.success else 0
            if held == self._held_steps:
                break
            observations.append(outcome.observation)
        seen = observations[: len(actions)]
        stacked = {key: np.stack([observation[key] for observation in seen]) for key in seen[0]}
        return Demonstration(np.stack(actions), stacked, held == self._held_steps)
