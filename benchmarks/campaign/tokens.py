"""Random strings of tokens: every one must decode to a finite chunk, alike in PyTorch and exported."""

from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.campaign.children import call
from benchmarks.campaign.trial import Broken, Place
from benchmarks.campaign.workshop import item
from oat.errors import UndecodableTokens
from oat.export.loading import load_predictor
from oat.policies import TokenDecoding
from oat.policies.token_predictor import TokenPredictor
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.tokens import Tokens
from tests.policies.small import observe

STRINGS = 50_000
"""Strings of one trial."""
_ROWS = 1_000
_TOLERANCE = 1e-4
_SECONDS = 300.0


def decode_random(name: str, generator: np.random.Generator, place: Place) -> int:
    """Decode random strings by a tokenizer, or by a policy that its export must agree with."""
    sort, _, kind = name.partition("-")
    seed = int(generator.integers(2**31))
    if sort == "tokenizer":
        check = partial(_by_tokenizer, item(place, name) / "checkpoint", seed)
    else:
        eager = item(place, f"policy-{kind}") / "checkpoint"
        exported = None if sort == "eager" else item(place, f"export-{kind}") / "export"
        check = partial(_by_policy, eager, exported, seed)
    ended = call(check, _SECONDS).check()
    if ended.answer is not None:
        raise Broken(str(ended.answer))
    return STRINGS


def _by_tokenizer(path: Path, seed: int) -> str | None:
    """Return what is wrong with the chunks of random strings, if anything is."""
    tokenizer = load_tokenizer(path)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(STRINGS // _ROWS):
        tokens = _random_tokens(tokenizer, generator)
        actions, valid = tokenizer.try_decode(tokens)
        if tokenizer.total and not bool(valid.all()):
            return f"{int((~valid).sum())} of {_ROWS} strings do not decode"
        finite = actions.isfinite().all(dim=2).all(dim=1)
        if not torch.equal(finite, valid):
            return "chunks that are valid must be finite, and others NaN"
    return None


def _random_tokens(tokenizer: BaseTokenizer, generator: torch.Generator) -> Tokens:
    """Return strings of random ids, of random lengths where the kind has several."""
    most = tokenizer.max_tokens
    shortest = most if tokenizer.total and not tokenizer.prefix_decodable else 1
    lengths = torch.randint(shortest, most + 1, (_ROWS,), generator=generator)
    return Tokens(torch.randint(tokenizer.vocab_size, (_ROWS, most), generator=generator), lengths)


def _by_policy(eager: Path, exported: Path | None, seed: int) -> str | None:
    """Return what is wrong with the chunks that a policy makes of random tokens, if anything is."""
    policy = load_predictor(eager)
    runtime = policy if exported is None else load_predictor(exported)
    assert isinstance(policy, TokenPredictor)
    assert isinstance(runtime, TokenPredictor)
    generator = torch.Generator().manual_seed(seed)
    tokenizer = load_tokenizer(eager / "tokenizer")
    for _ in range(STRINGS // _ROWS):
        shortest = 1 if tokenizer.prefix_decodable else policy.length
        width = int(torch.randint(shortest, policy.length + 1, (), generator=generator))
        ids = torch.randint(tokenizer.vocab_size, (_ROWS, width), generator=generator)
        chunk = _chunk(runtime, ids)
        if tokenizer.total and not bool(chunk.isfinite().all()):
            return f"chunks of {width} tokens are not finite"
        if exported is not None and not torch.allclose(chunk, _chunk(policy, ids), atol=_TOLERANCE):
            return f"the export decodes {width} tokens otherwise than the policy"
    return None


def _chunk(predictor: TokenPredictor, ids: torch.Tensor) -> torch.Tensor:
    """Return the actions that a policy makes of tokens, as if it had generated them."""
    with predictor.inferring():
        values, tasks = predictor.read(observe(len(ids)))
        source = predictor.start_tokens(values, tasks, TokenDecoding(ids.shape[1]), None)
        try:
            return source.make_chunk(ids, torch.zeros(ids.shape), None).actions
        except UndecodableTokens:
            return torch.full((len(ids), 1, 1), torch.nan)
