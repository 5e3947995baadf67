"""Small policies for tests: random weights, tokenizers fitted to smooth synthetic chunks."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from oat.data.episodes import STATE
from oat.data.normalize import Normalizer
from oat.interfaces import Observation
from oat.nn.width import Width
from oat.policies import AutoregressivePolicy, DiffusionPolicy, Policy, RegressionPolicy
from oat.policies.config import AutoregressiveConfig, DiffusionConfig, RegressionConfig
from oat.policies.context import ContextConfig
from oat.policies.error_head import ErrorHead, HeadConfig
from oat.tokenizers.autoencoder import AutoencoderTokenizer
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens
from tests.tokenizers.fitted import DIM, HORIZON, fitted, smooth_chunks

KINDS = ("bin", "fast", "quest", "oat", "rvq")
STATE_DIM = 4
CONFIG = AutoregressiveConfig(Width(32, 16), layers=2)
CONTEXT = ContextConfig(vectors=(STATE,), vector_dims=(STATE_DIM,), tasks=("push", "pull"))
LONGEST_FAST = 24


def tokenizer_of(kind: str) -> BaseTokenizer:
    """Its own copy, because policies freeze it; learned ones get a head that does not decode everything to zero."""
    tokenizer = copy.deepcopy(fitted(kind))
    if isinstance(tokenizer, AutoencoderTokenizer):
        head = tokenizer.decoder.head
        torch.nn.init.normal_(head.weight, std=0.1, generator=torch.Generator().manual_seed(0))
    return tokenizer


def give_range(tokenizer: BaseTokenizer) -> None:
    """Let a tokenizer count as fitted: it knows a range of actions."""
    tokenizer.normalizer.low.fill_(-1.0)
    tokenizer.normalizer.high.fill_(1.0)


def autoregressive(kind: str, context: ContextConfig = CONTEXT) -> AutoregressivePolicy:
    """Untrained, its weights large enough that logits differ."""
    torch.manual_seed(0)
    policy = AutoregressivePolicy(context, tokenizer_of(kind), CONFIG, longest=LONGEST_FAST if kind == "fast" else None)
    torch.nn.init.normal_(policy.embedding.weight, std=0.3)
    return policy.eval()


def knowing(kind: str, **options: Any) -> AutoregressivePolicy:
    """The same, but it knows the lattice of its tokens; options are those of its configuration."""
    torch.manual_seed(0)
    config = replace(CONFIG, codes="lattice", soft_targets=0.6, **options)
    policy = AutoregressivePolicy(CONTEXT, tokenizer_of(kind), config)
    torch.nn.init.normal_(policy.embedding.weight, std=0.3)
    return policy.eval()


def diffusion(context: ContextConfig = CONTEXT) -> DiffusionPolicy:
    """Untrained, but it predicts something."""
    torch.manual_seed(0)
    policy = DiffusionPolicy(context, ActionSpace(HORIZON, DIM), DiffusionConfig(CONFIG.width, CONFIG.layers))
    policy.normalizer = Normalizer.from_range(np.full(DIM, -2.0), np.full(DIM, 2.0))
    policy.normalizer.low.fill_(-1.0)
    policy.normalizer.high.fill_(1.0)
    torch.nn.init.normal_(policy.to_noise.weight, std=0.2)
    return policy.eval()


def regression(context: ContextConfig = CONTEXT, **options: Any) -> RegressionPolicy:
    """Untrained, but it predicts something; options are those of its configuration."""
    torch.manual_seed(0)
    sizes = {"mlp_width": 48, "mlp_depth": 2, **options}
    config = RegressionConfig(CONFIG.width, CONFIG.layers, **sizes)
    policy = RegressionPolicy(context, ActionSpace(HORIZON, DIM), config)
    policy.normalizer = Normalizer.from_range(np.full(DIM, -2.0), np.full(DIM, 2.0))
    policy.normalizer.low.fill_(-1.0)
    policy.normalizer.high.fill_(1.0)
    torch.nn.init.normal_(policy.head.out.weight, std=0.1)
    return policy.eval()


def policy_of(kind: str) -> Policy:
    without_tokens: dict[str, Callable[[], Policy]] = {"diffusion": diffusion, "regression": regression}
    return without_tokens[kind]() if kind in without_tokens else autoregressive(kind)


def observe(rows: int, seed: int = 0) -> Observation:
    """Observations of several robots, half of them with another task."""
    values = np.random.default_rng(seed).normal(size=(rows, 2, STATE_DIM)).astype(np.float32)
    return Observation({STATE: values}, tuple(("push", "pull")[row % 2] for row in range(rows)))


def choose_rows(observation: Observation, rows: list[int]) -> Observation:
    values = {key: value[rows] for key, value in observation.values.items()}
    return Observation(values, tuple(observation.tasks[row] for row in rows))


def targets_of(policy: AutoregressivePolicy, rows: int, seed: int = 1) -> Tokens:
    """Tokens of smooth chunks that the policy can generate; FAST's are shorter than its limit."""
    tokens = policy.tokenizer.encode(smooth_chunks(400, seed))
    short = torch.nonzero(tokens.lengths <= policy.longest)[:rows, 0]
    assert len(short) == rows
    return tokens[short]


def head_of(policy: AutoregressivePolicy, executed: int = 8) -> ErrorHead:
    """A head that has learned nothing, and so stops rows here and there."""
    torch.manual_seed(1)
    head = ErrorHead(HeadConfig(policy.identity, CONFIG.width.dim, policy.outputs, policy.longest, executed))
    torch.nn.init.normal_(head.mlp.out.weight, std=0.3)
    head.vectors.copy_(policy.embedding.vectors().detach()[: policy.outputs])
    head.margin.fill_(1.5)
    return head.requires_grad_(False).eval()
