"""From a data set of LeRobot to a policy with random weights over a fitted tokenizer."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from lerobot_policy_oat.configuration_oat import OATConfig
from oat.data import transforms
from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import Episodes, open_dataset
from oat.data.normalize import Normalizer, action_statistics
from oat.data.provenance import read_demonstrator
from oat.errors import InvalidOption
from oat.io.training_record import TrainingRecord
from oat.policies import POLICIES, Policy
from oat.policies.context import ContextConfig, describe_context
from oat.policies.learning import PolicySetup
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.measures import draw_windows
from oat.training.tokenizers import action_space

_MOST_CHUNKS = 200_000  # a tokenizer learns little from more, and all of them lie in memory


def policy_for(config: OATConfig, root: Path) -> Policy:
    """Return a policy to train on the data set; a tokenizer is fitted to it unless one is given."""
    episodes = open_dataset(root)
    context = _context(config, episodes)
    demonstrator = read_demonstrator(root)
    if config.tokenizer_kind is None:
        space = action_space(episodes, config.chunk_size, transforms.parse("identity"))
        statistics = action_statistics(Windows(episodes, WindowConfig(config.chunk_size)), space.transform)
        normalizer = Normalizer.from_statistics(statistics, "min_max")
        setup = PolicySetup(context, space, normalizer, demonstrator=demonstrator)
    else:
        tokenizer = _tokenizer(config, episodes, config.tokenizer_kind)
        setup = PolicySetup(context, tokenizer.space, tokenizer.normalizer, tokenizer, demonstrator=demonstrator)
    policy = POLICIES.find(config.policy_kind).for_training(setup, config.chosen_preset().model)
    policy.context.fit(episodes)
    policy.training_record = TrainingRecord(data=str(root), demonstrator=demonstrator)
    return policy


def _context(config: OATConfig, episodes: Episodes) -> ContextConfig:
    context = describe_context(episodes, _observed(config, episodes), config.n_obs_steps)
    if config.image_size is None:
        return context
    return replace(context, camera_sizes=((config.image_size, config.image_size),) * len(context.cameras))


def _observed(config: OATConfig, episodes: Episodes) -> Sequence[str]:
    """Return the data set's observations that the configuration lists."""
    return [key for key in config.input_features or {} if key in episodes.observations]


def _tokenizer(config: OATConfig, episodes: Episodes, kind: str) -> BaseTokenizer:
    if config.tokenizer is None:
        return _fit(config, episodes, kind)
    tokenizer = load_tokenizer(config.tokenizer)
    if (tokenizer.kind, tokenizer.action_dim) != (kind, episodes.action_dim):
        raise InvalidOption(
            f"{config.tokenizer} is {tokenizer.kind} for {tokenizer.action_dim}-D actions; "
            f"the policy needs {kind} for {episodes.action_dim}-D"
        )
    if tokenizer.action_horizon != config.chunk_size:
        raise InvalidOption(
            f"{config.tokenizer} has chunks of {tokenizer.action_horizon} actions: "
            f"--policy.chunk_size={tokenizer.action_horizon}, got {config.chunk_size}"
        )
    return tokenizer


def _fit(config: OATConfig, episodes: Episodes, kind: str) -> BaseTokenizer:
    windows = Windows(episodes, WindowConfig(config.chunk_size, 1))
    # Shuffled, because the last ones are held out to measure errors.
    numbers = np.random.default_rng(config.tokenizer_seed).permutation(draw_windows(windows, _MOST_CHUNKS))
    batch = windows[numbers]
    with torch.random.fork_rng():
        return TOKENIZERS.find(kind).fit(
            batch.actions,
            batch.valid_mask,
            preset=config.preset,
            steps=config.tokenizer_steps,
            seed=config.tokenizer_seed,
        )
