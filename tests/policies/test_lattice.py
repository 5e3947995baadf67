"""Policies that know the lattice of their tokens: near codes have near vectors and are taught together."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from oat.errors import InvalidOption
from oat.nn.lattice import Lattice
from oat.policies import AutoregressivePolicy, DecodingOptions, Noise, TokenDecoding, load_policy
from oat.policies.config import AutoregressiveConfig
from oat.policies.token_embedding import TokenEmbedding
from oat.policies.token_lessons import soft_cross_entropy
from oat.tokenizers.tokens import Tokens
from tests.policies.small import CONFIG, CONTEXT, LONGEST_FAST, knowing, observe, targets_of, tokenizer_of

LATTICE = Lattice((4, 3))
KNOWING = replace(CONFIG, codes="lattice", soft_targets=0.6)


def test_a_step_on_one_code_moves_its_neighbours_and_no_others() -> None:
    embedding = TokenEmbedding(14, 8, LATTICE)
    assert embedding.levels is not None
    before = embedding.vectors().detach().clone()
    with torch.no_grad():
        embedding.levels[2] += 1.0  # the third level of the first axis
    moved = (embedding.vectors() != before).any(1)
    assert moved.tolist() == [
        *(bool(level == 2) for level in LATTICE.coordinates(torch.arange(12))[:, 0]),
        False,
        False,
    ]


def test_without_a_lattice_the_vectors_are_the_weights_themselves() -> None:
    embedding = TokenEmbedding(14, 8)
    assert embedding.vectors() is embedding.weight
    assert set(dict(embedding.named_parameters())) == {"weight"}


def test_narrow_soft_targets_are_the_target_alone_and_wide_ones_prefer_neighbours() -> None:
    logits = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([0, 3, 5, 7, 11])
    hard = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close(soft_cross_entropy(logits, targets, LATTICE, 0.05), hard)
    # Logits that are right up to one level cost less than those that are wrong by three.
    sure = 5 * torch.nn.functional.one_hot(torch.tensor([1, 3]), 12).float()
    near, far = soft_cross_entropy(sure, torch.tensor([0, 0]), LATTICE, 0.6)
    assert near < far


@pytest.mark.parametrize("kind", ["oat", "quest", "rvq"])
def test_a_knowing_policy_learns_saves_and_generates_as_others_do(kind: str, tmp_path: Path) -> None:
    policy = knowing(kind)
    tokens = targets_of(policy, 4)
    taught = policy(*policy.context.read(observe(4)), tokens)
    assert (taught.losses != taught.nll).all()
    torch.autograd.backward(taught.losses.sum())
    assert policy.embedding.levels is not None
    assert policy.embedding.levels.grad is not None
    policy.save(tmp_path / "policy")
    loaded = load_policy(tmp_path / "policy")
    assert loaded.config == policy.config
    for noise in (Noise((1, 2, 3)), Noise((4, 5, 6))):
        expected = policy.predict_chunk(observe(3), TokenDecoding(), noise)
        assert torch.equal(loaded.predict_chunk(observe(3), TokenDecoding(), noise).actions, expected.actions)


def test_whatever_the_tokenizer_has_is_used_unless_it_is_named() -> None:
    auto = AutoregressiveConfig(CONFIG.width, 1, codes="auto", soft_targets=0.6, remainder=1.0)
    assert AutoregressivePolicy(CONTEXT, tokenizer_of("oat"), auto).config.codes == "lattice"
    for kind in ("bin", "fast"):
        longest = LONGEST_FAST if kind == "fast" else None
        plain = AutoregressivePolicy(CONTEXT, tokenizer_of(kind), auto, longest)
        assert (plain.config.codes, plain.config.soft_targets, plain.config.remainder) == ("classes", 0.0, 1.0)
        with pytest.raises(InvalidOption, match=f"tokens of {kind} are not points of a lattice"):
            AutoregressivePolicy(CONTEXT, tokenizer_of(kind), KNOWING, longest)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"soft_targets": 0.6}, "nobody knows which are near"),
        ({"remainder": -1.0}, "must be ≥ 0"),
        ({"codes": "lattice", "soft_targets": -1.0}, "must be ≥ 0"),
        ({"codes": "lattice", "mlp_width": 0}, "must be positive"),
    ],
)
def test_options_that_mean_nothing_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        AutoregressivePolicy(CONTEXT, tokenizer_of("oat"), AutoregressiveConfig(**options))  # type: ignore[arg-type]


def test_the_paper_s_preset_knows_nothing_and_samples() -> None:
    presets = AutoregressiveConfig.presets()
    paper = presets["paper"].model
    assert paper == AutoregressiveConfig(varied=None)
    for name in ("tiny", "cpu"):
        model = presets[name].model
        assert isinstance(model, AutoregressiveConfig)
        assert (model.codes, model.soft_targets, model.greedy, model.remainder) == ("auto", 0.6, True, 10.0)


def test_a_greedy_policy_samples_when_sampling_is_described() -> None:
    policy = knowing("oat", greedy=True)
    names = [
        each.name
        for options in (
            DecodingOptions(),
            DecodingOptions(temperature=0.5),
            DecodingOptions(top_k=3),
            DecodingOptions(greedy=False),
            DecodingOptions.paper(),
        )
        for each in policy.decodings(options)
    ]
    assert names == ["K=8 greedy", "K=8 T=0.5", "K=8 top-3", "K=8", "K=8"]
    assert policy.default_decoding == TokenDecoding(greedy=True)
    first, second = (policy.predict_chunk(observe(3), noise=Noise((seed, seed, seed))) for seed in (1, 2))
    assert torch.equal(first.actions, second.actions)


def test_padding_never_counts_with_soft_targets() -> None:
    policy = knowing("oat")
    tokens = targets_of(policy, 2)
    short = Tokens(tokens.ids, torch.tensor([3, 8]))
    taught = policy(*policy.context.read(observe(2)), short)
    assert (taught.losses[0, 3:] == 0).all()
    assert (taught.losses[0, :3] > 0).all()


def test_who_asks_a_tokenizer_without_a_lattice_for_one_is_told() -> None:
    usual = AutoregressiveConfig.presets()["cpu"].model
    assert isinstance(usual, AutoregressiveConfig)
    usual.refuse_without_lattice(usual, "fast")  # the preset's own go silently
    replace(usual, soft_targets=0.0).refuse_without_lattice(usual, "fast")
    asked = replace(usual, soft_targets=0.9, remainder=1.0)
    with pytest.raises(InvalidOption, match=r"tokens of fast are not .* leave out --soft-targets$"):
        asked.refuse_without_lattice(usual, "fast")
