"""Next-token policy over any action tokenizer (paper, section IV-D and algorithm 2)."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from oat.data.normalize import Normalizer
from oat.errors import CheckpointError, InvalidOption
from oat.interfaces import UNKNOWN_DEMONSTRATOR
from oat.io.training_record import Measures
from oat.policies.config import AutoregressiveConfig, PolicyConfig
from oat.policies.context import ContextConfig, Values
from oat.policies.decoding import TokenDecoding, TokenLimits, at_position
from oat.policies.learning import HeldOut, Lesson, PolicySetup, mean_over_processes
from oat.policies.method_names import tokenizer_method
from oat.policies.policy import Policy
from oat.policies.predictor import Chunk
from oat.policies.remainder import Context, Remainder
from oat.policies.sampling import Noise, likely_tokens, sample, token_noise
from oat.policies.token_embedding import TokenEmbedding
from oat.policies.token_lessons import Chunks, Taught, soft_cross_entropy
from oat.policies.token_measures import SHOWN_POSITIONS, measure_tokens
from oat.policies.token_predictor import Ids, Lengths, LogProbabilities, TokenPredictor, TokenSource, TokenStep
from oat.policies.token_sequence import TokenSequence
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.decoder import masked_error
from oat.tokenizers.loading import load_tokenizer, restore_tokenizer
from oat.tokenizers.tokens import Tokens

TOKENIZER_FOLDER = "tokenizer"
_MARGIN = 1.25  # a generated FAST sequence may be this much longer than the longest that was taught
_TAUGHT_ROWS = 4  # beside a remainder, one of so many rows teaches its tokens


class AutoregressivePolicy(TokenPredictor, Policy):
    """p(T | o) = Π p(T_i | T_<i, o) over the tokens of its tokenizer, which is frozen and part of its checkpoint.

    BOS is an input and never a logit. Tokenizers of variable length get one more output, EOS; a sequence that does
    not reach it is not decodable. Where tokens are points of a lattice, the policy can know that: near codes have
    near vectors and are taught together. A remainder can make exact what the tokens chose.
    """

    kind = "autoregressive"
    config_class = AutoregressiveConfig
    config: AutoregressiveConfig
    exported_as = "oat.export.token_graphs:GraphTokenPolicy"
    tokenizer: BaseTokenizer

    def __init__(
        self,
        context: ContextConfig,
        tokenizer: BaseTokenizer,
        config: PolicyConfig | None = None,
        longest: int | None = None,
    ) -> None:
        size = config or AutoregressiveConfig()
        lattice = tokenizer.lattice()
        if isinstance(size, AutoregressiveConfig):  # the base refuses others
            size = size.for_lattice(lattice is not None, tokenizer.kind).for_demonstrator(UNKNOWN_DEMONSTRATOR)
        super().__init__(context, tokenizer.space, size)
        # Frozen: were the tokenizer to learn, the policy's targets would move.
        self.tokenizer = tokenizer.requires_grad_(False).eval()
        self.variable_length = not tokenizer.total
        self.longest = tokenizer.max_tokens if longest is None else longest
        """The most tokens that are generated, EOS not counted."""
        self.eos = tokenizer.vocab_size if self.variable_length else None
        self.outputs = tokenizer.vocab_size + self.variable_length
        width = self.config.width.dim
        self.lattice = lattice if self.config.codes == "lattice" else None
        self.embedding = TokenEmbedding(self.outputs + 1, width, self.lattice)
        self.remainder = self._make_remainder() if self.config.remainder else None
        self.positions = nn.Parameter(torch.randn(self.length, width) * 0.02)

    def _make_remainder(self) -> Remainder:
        chunk = (self.space.action_horizon, self.space.model_dim)
        context = self.context.num_tokens * self.config.width.dim
        return Remainder(context, chunk, self.config.mlp_width, self.config.mlp_depth)

    @classmethod
    def for_training(cls, setup: PolicySetup, config: PolicyConfig) -> "AutoregressivePolicy":
        """Return a policy with random weights over the tokenizer, long enough for its training chunks, which acts as
        suits those who demonstrated."""
        assert setup.tokenizer is not None
        assert isinstance(config, AutoregressiveConfig)
        tokenizer = setup.tokenizer
        longest = None
        if not tokenizer.total and setup.longest_tokens is not None:
            longest = min(tokenizer.max_tokens, round(_MARGIN * setup.longest_tokens))
        return cls(setup.context, tokenizer, config.for_demonstrator(setup.demonstrator), longest)

    @classmethod
    def restoring(
        cls, folder: Path | None, described: Mapping[str, Any], context: ContextConfig, config: PolicyConfig
    ) -> Callable[[], "AutoregressivePolicy"]:
        """Return what builds the policy of a checkpoint, without its weights, over the tokenizer beside them."""
        if folder is None:
            tokenizer = restore_tokenizer(described[TOKENIZER_FOLDER])
        else:
            tokenizer = load_tokenizer(folder / TOKENIZER_FOLDER)
        longest = described["longest"]
        # Sequences are also padded to it in memory that no tensor of the checkpoint tells of.
        if type(longest) is not int or not 1 <= longest <= tokenizer.max_tokens:
            raise CheckpointError(f"{folder}: longest must be in 1…{tokenizer.max_tokens}, got {longest!r:.60}")
        return partial(cls, context, tokenizer, config, longest)

    @property
    def limits(self) -> TokenLimits:
        """Return what the tokenizer can decode, and how many tokens the policy generates at most."""
        tokenizer = self.tokenizer
        return TokenLimits(
            tokenizer.kind,
            tokenizer.prefix_decodable,
            self.longest,
            self.space.action_horizon,
            self.remainder is not None,
            self.config.greedy,
            bool(self.config.varied),
        )

    @property
    def method(self) -> str:
        """Return the tokenizer's name, and how it differs from the paper's: the policy is always the same."""
        return tokenizer_method(self.tokenizer)

    @property
    def teacher(self) -> BaseTokenizer:
        return self.tokenizer

    @property
    def bos(self) -> int:
        """Return the input of the first position."""
        return self.outputs

    def train(self, mode: bool = True) -> "AutoregressivePolicy":
        """Change the mode of all but the tokenizer: its targets must not change with the policy's mode."""
        super().train(mode)
        self.tokenizer.eval()
        return self

    def forward(
        self,
        values: Values,
        tasks: Int64[Tensor, " batch"],
        tokens: Tokens,
        chunks: Chunks | None = None,
        generator: torch.Generator | None = None,
    ) -> Taught:
        """Return what the policy makes of these tokens; with chunks also the remainder's errors.

        Beside these, every fourth row's tokens are enough: regression learns from many rows that cost little each.
        """
        context = self.context(values, tasks, generator)
        left_out = None
        if self.remainder is not None and chunks is not None:
            left_out = masked_error(self.remainder(context), *chunks)
            context = context[::_TAUGHT_ROWS]
            tokens = tokens[::_TAUGHT_ROWS]
        targets, counts = self.targets(tokens)
        _, logits = self._teach(context, targets)
        nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").reshape(targets.shape)
        losses = nll
        if self.lattice is not None and self.config.soft_targets:
            losses = soft_cross_entropy(logits, targets, self.lattice, self.config.soft_targets)
        return Taught(nll * counts, losses * counts, counts, logits.detach().argmax(-1), left_out)

    def _teach(
        self, context: Context, targets: Int64[Tensor, "batch length"]
    ) -> tuple[Float[Tensor, "batch length dim"], Float[Tensor, "batch length outputs"]]:
        """Return what the policy knows before each of these tokens, and its logits there."""
        vectors = self.embedding.vectors()
        given = F.pad(targets[:, :-1], (1, 0), value=self.bos)
        embedded = F.embedding(given, vectors) + self.positions[: given.shape[1]]
        hidden = self.backbone(embedded, context, causal=True)
        return hidden, self.logits(hidden, vectors)

    def read_tokens(
        self, values: Values, tasks: Int64[Tensor, " batch"], ids: Int64[Tensor, "batch length"]
    ) -> tuple[Float[Tensor, "batch length dim"], Float[Tensor, "batch length outputs"]]:
        """Return the same for an observation and the tokens of its chunk, as generating them would give it."""
        return self._teach(self.context(values, tasks), ids)

    def targets(self, tokens: Tokens) -> tuple[Int64[Tensor, "batch length"], Float[Tensor, "batch length"]]:
        """Return ids to predict, with EOS where the tokenizer needs it, and 1 where a position counts."""
        width = int(tokens.lengths.max()) + self.variable_length if self.variable_length else self.longest
        if width > self.length:
            raise InvalidOption(f"the policy generates at most {self.longest} tokens, a target has {width - 1}")
        places = torch.arange(width, device=tokens.ids.device)
        ids = F.pad(tokens.ids, (0, max(0, width - tokens.ids.shape[1])))[:, :width]
        if self.eos is not None:
            ids = torch.where(places < tokens.lengths[:, None], ids, self.eos)
        return ids, (places < tokens.lengths[:, None] + self.variable_length).float()

    def logits(
        self, hidden: Float[Tensor, "*batch dim"], vectors: Float[Tensor, "tokens dim"]
    ) -> Float[Tensor, "*batch outputs"]:
        """Return a logit for every token; the output weights are the vectors without that of BOS, the last of them."""
        return F.linear(hidden, vectors[: self.outputs]).float()

    @property
    def action_normalizer(self) -> Normalizer:
        return self.tokenizer.normalizer

    def loss(
        self, module: Callable[..., Any], lesson: Lesson, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the mean loss of the tokens that count (teacher forcing), and of the remainder, by its weight."""
        assert lesson.tokens is not None
        chunks = None
        if lesson.actions is not None and lesson.valid_mask is not None:
            chunks = (lesson.actions, lesson.valid_mask)
        tokens = lesson.tokens.to(lesson.tasks.device)
        taught: Taught = module(lesson.values, lesson.tasks, tokens, chunks, generator)
        per_position = (taught.nll.detach().sum(0) / taught.counts.sum(0).clamp_min(1))[:SHOWN_POSITIONS]
        shown = {f"nll_{place}": value for place, value in enumerate(per_position, start=1)}
        loss = taught.losses.sum() / mean_over_processes(taught.counts.sum())
        if taught.left_out is not None:
            error = taught.left_out.mean()
            shown["mse"] = error.detach()
            loss = loss + self.config.remainder * error
        return loss, shown

    def measure(self, held_out: HeldOut) -> Measures:
        """Return how likely the policy finds held-out tokens, and how far its own chunks are from what was done."""
        return measure_tokens(self, held_out)

    def start_tokens(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: TokenDecoding, noise: Noise | None
    ) -> TokenSource:
        """Encode the context once, and return what generates one token after the other.

        Several samples of a row share its context and the step before the first token.
        """
        context = self.context(values, tasks)
        length = decoding.num_tokens or self.length
        random = token_noise(decoding, noise, length, self.outputs)
        random = None if random is None else random.to(context.device)
        samples = decoding.samples
        with torch.inference_mode():
            sequence = TokenSequence(self, context, length)

        def next_token(place: int) -> TokenStep:
            added = None if random is None else random[place]
            temperature = at_position(decoding.temperature, place)
            with torch.inference_mode():
                logits = sequence.next_logits(place)
                if place == 0 and samples > 1:
                    logits = logits.repeat_interleave(samples, 0)
                    sequence.repeat(samples)
                top_k = likely_tokens(decoding, self.outputs, place)
                sequence.last, log_probability = sample(logits, added, temperature, top_k)
            return TokenStep(sequence.last, log_probability, sequence.hidden)

        state = self.current_state(values)
        if samples > 1:
            context = context.repeat_interleave(samples, 0)
            state = None if state is None else state.repeat_interleave(samples, 0)
        decode = partial(self._complete, context) if decoding.remainder else self._decode
        return TokenSource(next_token, partial(decode, state, decoding.num_actions), sequence.go_on_from)

    def _complete(
        self,
        context: Context,
        state: Float[Tensor, "batch state"] | None,
        num_actions: int | None,
        ids: Ids,
        log_probabilities: LogProbabilities,
        lengths: Lengths | None = None,
    ) -> Chunk:
        """Decode the tokens so far, and let the remainder make exact what they chose."""
        assert self.remainder is not None
        # Whole chunks are compared, also where only their first actions are wanted: else these would depend on it.
        chunk = self._decode(state, None, ids, log_probabilities, lengths)
        completed = self.remainder.complete(context, self.to_model_space(chunk.actions, state))
        actions = self.space.to_actions(completed, self.action_normalizer, state)
        return replace(chunk, actions=actions[:, :num_actions])

    def _decode(
        self,
        state: Float[Tensor, "batch state"] | None,
        num_actions: int | None,
        ids: Ids,
        log_probabilities: LogProbabilities,
        lengths: Lengths | None = None,
    ) -> Chunk:
        """Decode the tokens so far; a row of variable length is valid only if its end was generated."""
        if lengths is None:
            lengths = torch.full((len(ids),), ids.shape[1], device=ids.device)
        if self.eos is None:
            kept = Tokens(ids, lengths).real
            tokens = Tokens(ids.where(kept, 0), lengths)
            actions, valid = self.tokenizer.try_decode(tokens, num_actions, state)
            return Chunk(actions, valid, lengths, tokens, log_probabilities * kept)
        ended = ids == self.eos
        finished = ended.any(1)
        lengths = torch.where(finished, ended.int().argmax(1), lengths)
        tokens = Tokens(ids.where(Tokens(ids, lengths).real, 0), lengths)
        # Rows that are not valid are decoded, too, so that the shapes fit; they become NaN below.
        decodable = Tokens(tokens.ids, lengths.clamp(1, self.tokenizer.max_tokens))
        actions, valid = self.tokenizer.try_decode(decodable, num_actions, state)
        valid = valid & finished & (lengths > 0)
        # EOS was drawn, too: its log-probability counts, what follows it does not.
        counted = torch.arange(ids.shape[1], device=ids.device) <= lengths[:, None]
        return Chunk(
            actions.where(valid[:, None, None], torch.nan), valid, lengths, tokens, log_probabilities * counted
        )

    def describe(self) -> dict[str, Any]:
        """Return what config.json holds, with the most tokens that are generated."""
        return {**super().describe(), "longest": self.longest}

    def own_state(self) -> dict[str, Tensor]:
        """Return the policy's tensors without the tokenizer's, which has files of its own."""
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("tokenizer.")}

    def save_files(self, directory: Path) -> None:
        """Write the checkpoint's files, the tokenizer's in a folder below them."""
        super().save_files(directory)
        (directory / TOKENIZER_FOLDER).mkdir(exist_ok=True)
        self.tokenizer.save_files(directory / TOKENIZER_FOLDER)
