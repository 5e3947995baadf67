"""The next-token policy over every tokenizer: targets, loss, generation, and what cannot be decoded."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from oat.data.episodes import STATE
from oat.data.transforms import Relative
from oat.errors import InvalidObservation, InvalidOption
from oat.interfaces import Observation
from oat.policies import AutoregressivePolicy, Denoising, Noise, TokenDecoding
from oat.policies.context import ContextConfig
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.bin import BinTokenizer
from oat.tokenizers.fast import FASTTokenizer
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens
from tests.policies.small import CONFIG, CONTEXT, KINDS, LONGEST_FAST, autoregressive, give_range, observe, targets_of
from tests.tokenizers.fitted import DIM, HORIZON, smooth_chunks

GREEDY = TokenDecoding(greedy=True)


def _loss(policy: AutoregressivePolicy, tokens: Tokens, observation: Observation) -> Tensor:
    taught = policy(*policy.context.read(observation), tokens)
    return taught.nll.sum() / taught.counts.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_it_learns_one_batch_by_heart(kind: str) -> None:
    """The loss falls to a fraction, and what is then generated greedily is what was taught."""
    policy, rows = autoregressive(kind).train(), 4
    tokens, observation = targets_of(policy, rows), observe(rows)
    optimizer = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], 1e-2, weight_decay=0.0)
    losses = []
    for _ in range(120):
        loss = _loss(policy, tokens, observation)
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        losses.append(float(loss.detach()))
    assert all(loss < float("inf") for loss in losses)
    assert losses[-1] < 0.05 * losses[0]
    chunk = policy.predict_chunk(observation, GREEDY)
    assert chunk.tokens is not None
    assert chunk.valid.all()
    assert chunk.tokens.tolist() == tokens.tolist()
    torch.testing.assert_close(chunk.actions, policy.tokenizer.decode(tokens))


@pytest.mark.parametrize("kind", KINDS)
def test_a_chunk_has_the_shapes_it_promises(kind: str) -> None:
    policy, rows = autoregressive(kind), 3
    chunk = policy.predict_chunk(observe(rows))
    assert chunk.actions.shape == (rows, HORIZON, DIM)
    assert chunk.valid.shape == chunk.steps.shape == (rows,)
    assert chunk.tokens is not None
    assert chunk.log_probabilities is not None
    assert chunk.log_probabilities.shape == chunk.tokens.ids.shape
    assert (chunk.log_probabilities <= 0).all()
    assert torch.equal(chunk.steps, chunk.tokens.lengths)
    if kind != "fast":
        assert chunk.valid.all()
        assert (chunk.steps == policy.tokenizer.max_tokens).all()
        torch.testing.assert_close(chunk.actions, policy.tokenizer.decode(chunk.tokens))


@pytest.mark.parametrize("kind", KINDS)
def test_bos_is_never_a_logit_and_only_fast_has_eos(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, widths, given = autoregressive(kind), set[int](), list[int]()
    extra = int(kind == "fast")
    assert policy.outputs == policy.tokenizer.vocab_size + extra
    assert policy.bos == policy.outputs
    assert policy.eos == (policy.tokenizer.vocab_size if extra else None)
    assert policy.embedding.num_embeddings == policy.outputs + 1
    logits, embed = policy.logits, F.embedding

    def recorded(hidden: Tensor, vectors: Tensor) -> Tensor:
        widths.add(logits(hidden, vectors).shape[-1])
        return logits(hidden, vectors)

    def embedded(ids: Tensor, weight: Tensor, *options: Any) -> Tensor:
        if weight is policy.embedding.weight:
            given.append(int((ids == policy.bos).sum()))
        return embed(ids, weight, *options)

    monkeypatch.setattr(policy, "logits", recorded)
    monkeypatch.setattr(F, "embedding", embedded)
    _loss(policy, targets_of(policy, 2), observe(2))
    chunk = policy.predict_chunk(observe(2))
    assert widths == {policy.outputs}
    assert chunk.tokens is not None
    assert (chunk.tokens.ids < policy.tokenizer.vocab_size).all()
    assert given == [2, 2] + [0] * (len(given) - 2)  # once per row, at the beginning of each sequence


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_what_follows_a_row_s_tokens_does_not_matter(kind: str) -> None:
    """Padding is neither a target nor seen by what is one."""
    policy, rows = autoregressive(kind), 6
    full = targets_of(policy, rows)
    lengths = full.lengths if kind == "fast" else torch.tensor([1, 2, 3, 1, 2, 4])
    padding = torch.arange(full.ids.shape[1]) >= lengths[:, None]
    assert padding.any()
    losses = []
    for seed in range(2):
        other = torch.randint(
            policy.tokenizer.vocab_size, full.ids.shape, generator=torch.Generator().manual_seed(seed)
        )
        tokens = Tokens(full.ids.where(~padding, other), lengths)
        taught = policy(*policy.context.read(observe(rows)), tokens)
        assert torch.equal(taught.counts.sum(1).long(), lengths + (kind == "fast"))
        losses.append(taught.nll)
    assert torch.equal(*losses)
    changed = Tokens(full.ids.clone(), lengths)
    changed.ids[:, 0] = (changed.ids[:, 0] + 1) % policy.tokenizer.vocab_size
    assert not torch.allclose(policy(*policy.context.read(observe(rows)), changed)[0], losses[0])


def test_eos_is_the_target_after_the_last_token() -> None:
    policy = autoregressive("fast")
    targets, counts = policy.targets(Tokens.from_lists([[5, 6, 7], [8]]))
    eos = policy.eos
    assert targets.tolist() == [[5, 6, 7, eos], [8, eos, eos, eos]]
    assert counts.tolist() == [[1, 1, 1, 1], [1, 1, 0, 0]]
    with pytest.raises(InvalidOption, match=f"at most {LONGEST_FAST} tokens, a target has {LONGEST_FAST + 1}"):
        policy.targets(Tokens.from_lists([[0] * (LONGEST_FAST + 1)]))


def _force(policy: AutoregressivePolicy, rows: list[list[int]], monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let the policy generate these ids whatever it sees; gives the places whose logits it asked for."""
    asked: list[int] = []
    wanted = torch.tensor(rows)

    def forced(hidden: Tensor, vectors: Tensor) -> Tensor:
        logits = torch.zeros(len(hidden), policy.outputs)
        logits.scatter_(1, wanted[:, len(asked), None], 5.0)
        asked.append(len(asked))
        return logits

    monkeypatch.setattr(policy, "logits", forced)
    return asked


def test_fast_is_decoded_when_well_formed_and_reported_when_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows: well-formed; without EOS; EOS too early; EOS at once; a wrong last token. Never zeros for a robot."""
    policy = autoregressive("fast")
    tokens = targets_of(policy, 1)
    good = tokens.tolist()[0]
    eos, width = policy.tokenizer.vocab_size, policy.length
    sequences = [[*good, eos], good, [*good[:-1], eos], [eos], [*good[:-1], good[-1], good[-1], eos]]
    rows = [row + [good[0]] * (width - len(row)) for row in sequences]
    asked = _force(policy, rows, monkeypatch)
    chunk = policy.predict_chunk(observe(5), GREEDY)
    assert chunk.valid.tolist() == [True, False, False, False, False]
    torch.testing.assert_close(chunk.actions[:1], policy.tokenizer.decode(tokens))
    assert torch.isnan(chunk.actions[1:]).all()
    assert chunk.steps.tolist() == [len(good), width, len(good) - 1, 0, len(good) + 1]
    assert chunk.tokens is not None
    assert chunk.log_probabilities is not None
    assert chunk.tokens.tolist()[0] == good
    assert (chunk.log_probabilities[0, : len(good) + 1] < 0).all()  # the token EOS was drawn, too
    assert (chunk.log_probabilities[0, len(good) + 1 :] == 0).all()
    assert len(asked) == width


def test_fast_without_eos_is_invalid_even_if_its_tokens_would_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody knows whether the policy had finished."""
    tokenizer = autoregressive("fast").tokenizer
    good = tokenizer.encode(smooth_chunks(1)).tolist()[0]
    policy = AutoregressivePolicy(CONTEXT, tokenizer, CONFIG, longest=len(good) - 1).eval()
    _force(policy, [good], monkeypatch)
    chunk = policy.predict_chunk(observe(1), GREEDY)
    assert chunk.tokens is not None
    assert chunk.tokens.tolist() == [good]
    assert torch.isfinite(tokenizer.decode(chunk.tokens)).all()
    assert chunk.valid.tolist() == [False]
    assert torch.isnan(chunk.actions).all()


def test_fast_stops_when_all_rows_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = autoregressive("fast")
    good = targets_of(policy, 1).tolist()[0]
    eos = policy.tokenizer.vocab_size
    rows = [[*good, eos], [*good[:2], eos] + [0] * (len(good) - 2)]
    asked = _force(policy, rows, monkeypatch)
    chunks = list(policy.stream(observe(2), GREEDY))
    assert len(chunks) == 1
    assert len(asked) == len(good) + 1
    assert chunks[0].valid.tolist() == [True, False]


@pytest.mark.parametrize("kind", ["quest", "oat"])
def test_the_tokenizer_stays_frozen_and_in_evaluation_mode(kind: str) -> None:
    policy = autoregressive(kind).train()
    assert policy.training
    assert policy.backbone.training
    assert not any(module.training for module in policy.tokenizer.modules())
    assert not any(parameter.requires_grad for parameter in policy.tokenizer.parameters())
    before = copy.deepcopy(policy.tokenizer.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), 1e-2)
    torch.autograd.backward(_loss(policy, targets_of(policy, 2), observe(2)))
    optimizer.step()
    assert all(torch.equal(before[name], tensor) for name, tensor in policy.tokenizer.state_dict().items())
    policy.predict_chunk(observe(1))
    assert policy.training  # generation gives the mode back …
    for chunk in policy.stream(observe(1)):
        assert not chunk.actions.requires_grad
        assert policy.training  # … between two chunks, too
        assert torch.is_grad_enabled()


@pytest.mark.parametrize("kind", ["bin", "fast", "quest"])
def test_num_tokens_needs_prefixes_that_decode(kind: str) -> None:
    policy = autoregressive(kind)
    for method in (policy.predict_chunk, policy.stream):
        with pytest.raises(InvalidOption, match=f"{kind} has no prefixes"):
            method(observe(1), TokenDecoding(num_tokens=2))


@pytest.mark.parametrize("decoding", [TokenDecoding(num_tokens=9), Denoising()])
def test_what_cannot_be_decoded_is_refused_at_the_call(decoding: Any) -> None:
    policy = autoregressive("oat")
    for method in (policy.predict_chunk, policy.stream):
        with pytest.raises(InvalidOption, match=r"num_tokens must be 1…8, got 9|decodes by TokenDecoding"):
            method(observe(1), decoding)


@pytest.mark.parametrize(
    "options",
    [
        *({"temperature": 0.0}, {"temperature": -1.0}, {"top_k": 0}, {"num_tokens": 0}, {"num_tokens": -3}),
        *({"greedy": True, "temperature": 0.5}, {"greedy": True, "top_k": 3}),
    ],
)
def test_decodings_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        TokenDecoding(**options)


def test_stream_gives_every_prefix_and_ends_with_the_chunk() -> None:
    policy, noise = autoregressive("oat"), Noise.of([3, 4], [0, 7])
    chunks = list(policy.stream(observe(2), noise=noise))
    last = policy.predict_chunk(observe(2), noise=noise)
    assert last.tokens is not None
    assert len(chunks) == policy.tokenizer.max_tokens == 8
    for count, chunk in enumerate(chunks, start=1):
        assert chunk.tokens is not None
        assert chunk.steps.tolist() == [count, count]
        assert chunk.tokens.tolist() == [row[:count] for row in last.tokens.tolist()]
        torch.testing.assert_close(chunk.actions, policy.tokenizer.decode(chunk.tokens))
        prefix = policy.predict_chunk(observe(2), TokenDecoding(num_tokens=count), noise)
        torch.testing.assert_close(chunk.actions, prefix.actions)
    assert torch.equal(chunks[-1].actions, last.actions)
    assert not torch.allclose(chunks[0].actions, last.actions)


@pytest.mark.parametrize("kind", ["bin", "quest"])
def test_stream_without_prefixes_gives_the_finished_chunk_only(kind: str) -> None:
    policy = autoregressive(kind)
    (chunk,) = policy.stream(observe(2))
    assert torch.equal(chunk.actions, policy.predict_chunk(observe(2)).actions)


def test_kept_chunks_do_not_change_while_the_stream_goes_on() -> None:
    kept = []
    for chunk in autoregressive("oat").stream(observe(2)):
        assert chunk.tokens is not None
        kept.append((chunk.tokens.ids, chunk.tokens.ids.clone(), chunk.actions, chunk.actions.clone()))
    assert all(torch.equal(ids, then) and torch.equal(actions, before) for ids, then, actions, before in kept)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_generated_can_be_computed_with(kind: str) -> None:
    """Chunks are ordinary tensors, which gradients may refer to."""
    chunk, weight = autoregressive(kind).predict_chunk(observe(2)), torch.ones((), requires_grad=True)
    assert chunk.tokens is not None
    assert chunk.log_probabilities is not None
    tensors = (chunk.actions, chunk.valid, chunk.steps, chunk.tokens.ids, chunk.tokens.lengths, chunk.log_probabilities)
    torch.autograd.backward([(weight * tensor).nan_to_num().sum() for tensor in tensors])
    assert weight.grad is not None
    assert not any(tensor.is_inference() for tensor in tensors)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_log_probabilities_are_those_of_the_generated_tokens(kind: str) -> None:
    """As teacher forcing gives them; temperature and top-k change what is drawn, not how likely the model holds it."""
    policy, rows = autoregressive(kind), 4
    chunk = policy.predict_chunk(observe(rows), TokenDecoding(temperature=1.5, top_k=5))
    assert chunk.tokens is not None
    assert chunk.log_probabilities is not None
    short = chunk.tokens.lengths.clamp(max=policy.longest)
    nll, _, counts, *_ = policy(*policy.context.read(observe(rows)), Tokens(chunk.tokens.ids, short))
    counts[:, policy.longest :] = 0  # a FAST sequence without EOS ends here, in teacher forcing with EOS
    width = min(nll.shape[1], chunk.log_probabilities.shape[1])
    found = chunk.log_probabilities[:, :width] * counts[:, :width]
    torch.testing.assert_close(found, -nll[:, :width] * counts[:, :width], atol=1e-4, rtol=1e-4)
    assert (found < -1e-3).any()


class _Watched(BinTokenizer):
    """Remembers the state it was given for decoding."""

    seen: Any = None

    def try_decode(self, tokens: Any, steps: Any = None, state: Any = None, noise: Any = None) -> tuple[Tensor, Tensor]:
        self.seen = state
        return super().try_decode(tokens, steps, state, noise)


def test_the_state_that_actions_refer_to_need_not_be_observed() -> None:
    """Relative actions with a policy that sees another key: the state is asked for, checked and used."""
    context = ContextConfig(vectors=("observation.goal",), vector_dims=(2,), tasks=("push",))
    tokenizer = _Watched(ActionSpace(4, DIM, Relative(), state_dim=DIM))
    give_range(tokenizer)
    policy = AutoregressivePolicy(context, tokenizer, CONFIG).eval()
    goal, state = torch.randn(2, 2, 2).numpy(), torch.randn(2, 2, DIM).double().numpy()
    chunk = policy.predict_chunk(Observation({"observation.goal": goal, STATE: state}, ("push",) * 2), GREEDY, pad_to=3)
    assert torch.equal(tokenizer.seen[:2], torch.from_numpy(state[:, -1]).float())
    assert chunk.actions.dtype == torch.float32
    with pytest.raises(InvalidObservation, match=f"lacks '{STATE}'"):
        policy.predict_chunk(Observation({"observation.goal": goal}, ("push",) * 2))


def test_a_longest_sequence_of_fast_still_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many tokens as the tokenizer has at most, and then EOS."""
    tokenizer = autoregressive("fast").tokenizer
    assert isinstance(tokenizer, FASTTokenizer)
    policy = AutoregressivePolicy(CONTEXT, tokenizer, CONFIG).eval()
    singles = torch.nonzero(tokenizer._expansions[1] == 1)[:, 0].tolist()
    row = [singles[place % 5] for place in range(tokenizer.max_tokens)]
    _force(policy, [[*row, tokenizer.vocab_size]], monkeypatch)
    chunk = policy.predict_chunk(observe(1), GREEDY)
    assert chunk.valid.tolist() == [True]
    torch.testing.assert_close(chunk.actions, tokenizer.decode([row]))


_GENERATE = """
import gc, resource, sys
import torch
from oat.policies import Noise, TokenDecoding
from tests.policies.small import autoregressive, observe

def held():
    gc.collect()
    objects = gc.get_objects()
    tensors = sum(issubclass(type(thing), torch.Tensor) for thing in objects)
    return tensors, len(objects), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024

torch.set_num_threads(1)
policy, observation, chunks = autoregressive(sys.argv[1]), observe(1), int(sys.argv[2])
decoding = TokenDecoding(num_tokens=3) if sys.argv[1] == "oat" else None
for number in range(20):
    policy.predict_chunk(observation, decoding, Noise((number,)))
before = held()
for number in range(chunks):
    policy.predict_chunk(observation, decoding, Noise((number,)))
after = held()
assert after[0] <= before[0], ("tensors", before, after)
assert after[1] <= before[1] + 100, ("objects", before, after)
assert after[2] <= before[2] + 4, ("megabytes", before, after)
"""


@pytest.mark.parametrize(("kind", "chunks"), [("oat", 1000), ("fast", 20)])
def test_generating_keeps_nothing(kind: str, chunks: int) -> None:
    """After a thousand chunks there are no more tensors, objects and memory than before them."""
    command = [sys.executable, "-c", _GENERATE, kind, str(chunks)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr


def test_tokens_are_encoded_the_same_in_training_mode() -> None:
    policy = autoregressive("oat")
    tokenizer: BaseTokenizer = policy.tokenizer
    before = tokenizer.encode(smooth_chunks(8)).tolist()
    policy.train()
    assert tokenizer.encode(smooth_chunks(8)).tolist() == before
