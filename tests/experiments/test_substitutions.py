"""Wrong tokens on purpose."""

import torch

from oat.experiments.study.held_out import generator
from oat.experiments.substitutions import decode_forced, measure_damage, substitute
from oat.tokenizers import FASTTokenizer
from oat.tokenizers.measures import ChunkBatch
from oat.tokenizers.tokens import Tokens
from tests.tokenizers.fitted import DIM, HORIZON, fitted, smooth_chunks


def fast() -> FASTTokenizer:
    tokenizer = fitted("fast")
    assert isinstance(tokenizer, FASTTokenizer)
    return tokenizer


def test_as_many_tokens_change_as_are_asked_for() -> None:
    tokens = Tokens.from_lists([[1, 2, 3, 4, 5], [9, 9]])
    for count in (0, 1, 2, 4):
        changed = substitute(tokens, 10, count, generator())
        different = (changed.ids != tokens.ids).sum(1).tolist()
        assert different == [count, min(count, 2)]
        assert changed.lengths.tolist() == [5, 2]
        assert 0 <= int(changed.ids.min()) <= int(changed.ids.max()) < 10


def test_what_decodes_is_decoded_alike() -> None:
    tokenizer = fast()
    tokens = tokenizer.encode(smooth_chunks(20))
    torch.testing.assert_close(decode_forced(tokenizer, tokens), tokenizer.decode(tokens))


def test_a_missing_coefficient_moves_all_that_follow() -> None:
    """Without its first coefficient, every joint gets the next joint's numbers: the spectral shift."""
    tokenizer = fast()
    singles = {int(row[0]): token for token, row in enumerate(_expansions(tokenizer)) if len(row) == 1}
    numbers = [token % 5 - 2 for token in range(HORIZON * DIM)]
    whole = Tokens.from_lists([[singles[number] for number in numbers]])
    short = Tokens.from_lists([[singles[number] for number in numbers[1:]]])
    assert tokenizer.try_decode(whole)[1].tolist() == [True]
    assert tokenizer.try_decode(short)[1].tolist() == [False]
    shifted = torch.tensor([[*numbers[1:], 0]]).float()
    expected = tokenizer.from_coefficients(shifted, HORIZON).clamp(tokenizer.normalizer.low, tokenizer.normalizer.high)
    torch.testing.assert_close(decode_forced(tokenizer, short), tokenizer.normalizer.denormalize(expected))


def _expansions(tokenizer: FASTTokenizer) -> list[torch.Tensor]:
    return tokenizer.expand(Tokens.from_lists([[token] for token in range(tokenizer.vocab_size)]))


def test_damage_is_counted_and_forced() -> None:
    actions = smooth_chunks(60)
    chunks = ChunkBatch(actions, torch.ones(actions.shape[:2], dtype=torch.bool), None)
    intact, hurt = (measure_damage("FAST", fast(), chunks, count) for count in (0, 1))
    assert (intact.undecodable.estimate, int(intact.failed.sum())) == (0, 0)
    assert hurt.undecodable.estimate == hurt.failed.double().mean() > 0.3
    assert bool(torch.isfinite(hurt.decoded).all())
    assert bool((hurt.rmse > intact.rmse).all())
    assert measure_damage("OAT", fitted("oat"), chunks, 8).undecodable.estimate == 0
