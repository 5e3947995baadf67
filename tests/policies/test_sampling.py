"""Drawing tokens and noise: the right distribution, and the same numbers for a row in whatever company it is."""

import pytest
import torch

from oat.errors import InvalidOption
from oat.policies import Noise, TokenDecoding
from oat.policies.decoding import at_position
from oat.policies.sampling import gumbel, likely_tokens, sample, token_noise
from tests.policies.small import KINDS, autoregressive, choose_rows, observe, policy_of

EVERY_KIND = (*KINDS, "diffusion", "regression")


def _frequencies(logits: torch.Tensor, decoding: TokenDecoding, draws: int = 40_000) -> torch.Tensor:
    noise = gumbel(torch.rand(draws, len(logits), generator=torch.Generator().manual_seed(0)))
    rows = logits.expand(draws, -1)
    chosen, log_probabilities = sample(
        rows, noise, at_position(decoding.temperature, 0), likely_tokens(decoding, len(logits))
    )
    torch.testing.assert_close(log_probabilities, logits.log_softmax(-1)[chosen])  # before temperature and top-k
    return torch.bincount(chosen, minlength=len(logits)) / draws


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_samples_follow_the_softmax(temperature: float) -> None:
    """Within four standard errors for every token."""
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0, 0.5, -3.0])
    expected = (logits / temperature).softmax(-1)
    found = _frequencies(logits, TokenDecoding(temperature=temperature, top_k=None))
    assert ((found - expected).abs() < 4 * (expected * (1 - expected) / 40_000).sqrt() + 1e-6).all()


def test_top_k_leaves_out_the_others_and_keeps_proportions() -> None:
    logits = torch.tensor([1.0, 0.0, -1.0, 2.0, 0.5, -3.0])
    expected = logits.masked_fill(torch.tensor([False, True, True, False, False, True]), -torch.inf).softmax(-1)
    found = _frequencies(logits, TokenDecoding(top_k=3))
    assert (found[[1, 2, 5]] == 0).all()
    torch.testing.assert_close(found, expected, atol=0.01, rtol=0)


def test_extreme_uniform_numbers_give_finite_noise() -> None:
    assert torch.isfinite(gumbel(torch.tensor([0.0, 1e-30, 0.5, 1 - 2**-24, 1.0]))).all()


@pytest.mark.parametrize("decoding", [TokenDecoding(temperature=1e-4, top_k=None), TokenDecoding(top_k=1)])
@pytest.mark.parametrize("kind", KINDS)
def test_the_limits_of_sampling_are_greedy(kind: str, decoding: TokenDecoding) -> None:
    policy, rows = autoregressive(kind), 3
    greedy = policy.predict_chunk(observe(rows), TokenDecoding(greedy=True), Noise((1, 2, 3)))
    assert greedy.tokens is not None
    for keys in ((1, 2, 3), (4, 5, 6)):
        chunk = policy.predict_chunk(observe(rows), decoding, Noise(keys))
        assert chunk.tokens is not None
        assert chunk.tokens.tolist() == greedy.tokens.tolist()


def test_greedy_takes_the_most_likely_token() -> None:
    logits = torch.randn(5, 20, generator=torch.Generator().manual_seed(0))
    noise = gumbel(torch.rand(5, 20, generator=torch.Generator().manual_seed(1)))
    for noise_or_zeros in (None, torch.zeros(5, 20)):
        assert torch.equal(sample(logits, noise_or_zeros, 1.0, 20)[0], logits.argmax(-1))
    assert not torch.equal(sample(logits, noise, 1.0, 20)[0], logits.argmax(-1))
    assert token_noise(TokenDecoding(greedy=True), Noise((1, 2)), 3, 20) is None


def test_noise_belongs_to_the_row() -> None:
    """Keyed by episode and chunk; it is neither shared by rows nor changed by their number or order."""
    noise = Noise.of([5, 6, 5], [0, 0, 1])
    assert len(set(noise.keys)) == 3
    for draw in ("uniform", "normal"):
        whole = getattr(noise, draw)(4, 3)
        assert torch.equal(whole[1:2], getattr(Noise.of([6], [0]), draw)(4, 3))
        assert len({row.sum().item() for row in whole}) == 3
    assert ((noise.uniform(50) >= 0) & (noise.uniform(50) < 1)).all()
    assert (noise.normal(50) < 0).any()
    with pytest.raises(InvalidOption, match="a seed and a chunk, got 2 and 1"):
        Noise.of([7, 8], [0])


@pytest.mark.parametrize("kind", EVERY_KIND)
def test_a_row_is_the_same_in_every_batch_and_place(kind: str) -> None:
    """Bit by bit: with `pad_to` every call computes as many rows."""
    policy, observation, keys = policy_of(kind), observe(8), tuple(range(100, 108))
    whole = policy.predict_chunk(observation, None, Noise(keys), pad_to=8)
    for rows in ([3], [3, 0], [7, 6, 3, 1, 0], [5, 3, 2, 1, 0, 7, 6, 4]):
        noise = Noise(tuple(keys[row] for row in rows))
        part = policy.predict_chunk(choose_rows(observation, rows), None, noise, pad_to=8)
        assert torch.equal(part.valid, whole.valid[rows])
        assert torch.equal(part.steps, whole.steps[rows])
        assert torch.equal(part.actions.nan_to_num(99), whole.actions[rows].nan_to_num(99))
        if part.tokens is not None:
            assert whole.tokens is not None
            assert part.tokens.tolist() == [whole.tokens.tolist()[row] for row in rows]


@pytest.mark.parametrize("kind", ["bin", "quest", "oat", "diffusion"])
def test_other_keys_give_other_chunks(kind: str) -> None:
    policy, same = policy_of(kind), choose_rows(observe(1), [0, 0, 0])
    chunk = policy.predict_chunk(same, None, Noise((1, 2, 1)))
    assert torch.equal(chunk.actions[0], chunk.actions[2])
    assert not torch.allclose(chunk.actions[0], chunk.actions[1], atol=1e-3)
    again = policy.predict_chunk(same, None, Noise((1, 2, 1)))
    assert torch.equal(chunk.actions, again.actions)


def test_without_noise_a_row_s_place_is_its_key() -> None:
    policy = autoregressive("oat")
    chunk = policy.predict_chunk(observe(3))
    assert torch.equal(chunk.actions, policy.predict_chunk(observe(3), noise=Noise.of([0, 1, 2], [0, 0, 0])).actions)


def test_noise_and_padding_must_fit_the_rows() -> None:
    policy = autoregressive("oat")
    for method in (policy.predict_chunk, policy.stream):
        with pytest.raises(InvalidOption, match="2 observations need as many rows of noise, got 3"):
            method(observe(2), noise=Noise((1, 2, 3)))
    with pytest.raises(InvalidOption, match="cannot pad 3 rows to 2"):
        policy.predict_chunk(observe(3), pad_to=2)
