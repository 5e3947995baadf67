"""Policies for two MetaWorld tasks that have learned nothing."""

from pathlib import Path

import numpy as np
import torch

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import STATE, Episodes
from oat.data.normalize import Normalizer, action_statistics
from oat.nn.width import Width
from oat.policies import AutoregressivePolicy, DiffusionPolicy, Policy, RegressionPolicy
from oat.policies.config import AutoregressiveConfig, DiffusionConfig, RegressionConfig
from oat.policies.context import describe_context
from oat.tokenizers.space import ActionSpace
from tests.tokenizers.fitted import untrained

TASKS = ("reach", "drawer-close")


def save_policy(
    path: Path,
    kind: str = "diffusion",
    state_dim: int = 39,
    action_dim: int = 4,
    horizon: int = 16,
    obs_horizon: int = 2,
    tasks: tuple[str, ...] = TASKS,
) -> Path:
    """A policy with random weights."""
    torch.manual_seed(0)
    generator = np.random.default_rng(0)
    actions = generator.uniform(-1, 1, (60, action_dim)).astype(np.float32)
    states = generator.normal(size=(60, state_dim)).astype(np.float32)
    episodes = Episodes.from_arrays(actions, [30, 30], tasks, observations={STATE: states})
    space, context = ActionSpace(horizon, action_dim), describe_context(episodes, (STATE,), obs_horizon)
    normalizer = Normalizer.from_statistics(action_statistics(Windows(episodes, WindowConfig(horizon, 1))))
    width = Width(32, 16)
    policy: Policy
    if kind == "diffusion":
        policy = DiffusionPolicy(context, space, DiffusionConfig(width, 1))
        policy.normalizer = normalizer
    elif kind == "regression":
        policy = RegressionPolicy(context, space, RegressionConfig(width, 1, mlp_width=32))
        policy.normalizer = normalizer
        torch.nn.init.normal_(policy.head.out.weight, std=0.1)
    else:
        tokenizer = untrained(kind, space)
        tokenizer.normalizer = normalizer
        policy = AutoregressivePolicy(context, tokenizer, AutoregressiveConfig(width, 1))
    policy.save(path)
    return path
