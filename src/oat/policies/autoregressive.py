"""Next-token policy over any action tokenizer (paper, section IV-D and algorithm 2)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn
from torch.nn import functional as F

from oat.data.normalize import Normalizer
from oat.errors import InvalidOption
from oat.nn.generation import Generation
from oat.nn.transformer import along_outputs
from oat.policies.context import ContextConfig, Values
from oat.policies.deadline import Pace
from oat.policies.decoding import Decoding, Noise, TokenDecoding, TokenLimits, choose, gumbel
from oat.policies.policy import Policy, PolicyConfig
from oat.policies.predictor import Chunk
from oat.tokenizers.base import ActionTokenizer
from oat.tokenizers.tokens import Tokens

TOKENIZER_FOLDER = "tokenizer"


class AutoregressivePolicy(Policy):
    """p(T | o) = Π p(T_i | T_<i, o) over the tokens of its tokenizer, which is frozen and part of its checkpoint.

    BOS is an input and never a logit. Tokenizers of variable length get one more output, EOS; a sequence that does
    not reach it is not decodable.
    """

    kind = "autoregressive"

    def __init__(
        self,
        context: ContextConfig,
        tokenizer: ActionTokenizer,
        config: PolicyConfig | None = None,
        longest: int | None = None,
    ) -> None:
        super().__init__(context, tokenizer.space, config or PolicyConfig())
        self.tokenizer = tokenizer.requires_grad_(False).eval()
        self.variable_length = not tokenizer.total
        self.longest = tokenizer.max_tokens if longest is None else longest
        """The most tokens that are generated, EOS not counted."""
        self.outputs = tokenizer.vocab_size + self.variable_length
        self.embedding = nn.Embedding(self.outputs + 1, self.config.width.dim)
        nn.init.normal_(self.embedding.weight, std=0.02)
        self.embedding.weight = along_outputs(self.embedding.weight)
        self.positions = nn.Parameter(torch.randn(self.length, self.config.width.dim) * 0.02)

    @property
    def length(self) -> int:
        """The longest sequence, EOS included."""
        return self.longest + self.variable_length

    @property
    def eos(self) -> int:
        return self.tokenizer.vocab_size

    @property
    def bos(self) -> int:
        return self.outputs

    def train(self, mode: bool = True) -> "AutoregressivePolicy":
        """The tokenizer stays as it is: its targets must not change with the policy's mode."""
        super().train(mode)
        self.tokenizer.eval()
        return self

    def forward(
        self,
        values: Values,
        tasks: Int64[Tensor, " batch"],
        tokens: Tokens,
        generator: torch.Generator | None = None,
    ) -> tuple[Float[Tensor, "batch length"], Float[Tensor, "batch length"], Int64[Tensor, "batch length"]]:
        """For every position its negative log-likelihood, whether it counts, and the most likely token there."""
        targets, counts = self.targets(tokens)
        context = self.context(values, tasks, generator)
        given = F.pad(targets[:, :-1], (1, 0), value=self.bos)
        embedded = self.embedding(given) + self.positions[: given.shape[1]]
        logits = self._logits(self.backbone(embedded, context, causal=True))
        nll = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").reshape(targets.shape)
        return nll * counts, counts, logits.detach().argmax(-1)

    def targets(self, tokens: Tokens) -> tuple[Int64[Tensor, "batch length"], Float[Tensor, "batch length"]]:
        """Ids to predict, with EOS where the kind needs it, and 1 where a position counts."""
        width = int(tokens.lengths.max()) + self.variable_length if self.variable_length else self.longest
        if width > self.length:
            raise InvalidOption(f"the policy generates at most {self.longest} tokens, a target has {width - 1}")
        places = torch.arange(width, device=tokens.ids.device)
        ids = F.pad(tokens.ids, (0, max(0, width - tokens.ids.shape[1])))[:, :width]
        if self.variable_length:
            ids = torch.where(places < tokens.lengths[:, None], ids, self.eos)
        return ids, (places < tokens.lengths[:, None] + self.variable_length).float()

    def _logits(self, hidden: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch outputs"]:
        """The output weights are the embeddings; BOS, the last of them, is left out."""
        return F.linear(hidden, self.embedding.weight[: self.outputs]).float()

    @property
    def action_normalizer(self) -> Normalizer:
        return self.tokenizer.normalizer

    @property
    def default_decoding(self) -> TokenDecoding:
        return TokenDecoding()

    def check_decoding(self, decoding: Decoding) -> None:
        limits = TokenLimits(self.tokenizer.kind, self.anytime, self.longest, self.space.action_horizon)
        limits.check(decoding)

    @property
    def anytime(self) -> bool:
        return self.tokenizer.prefix_decodable

    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, pace: Pace
    ) -> Iterator[Chunk]:
        state, length = self.current_state(values), decoding.num_tokens or self.length
        ids, log_probabilities = list[Tensor](), list[Tensor]()
        for last, log_probability in self.generate_tokens(values, tasks, decoding, noise):
            ids.append(last)
            log_probabilities.append(log_probability)
            wanted = pace.wants_chunk() and self.anytime
            finished = len(ids) == length or self._all_ended(ids)
            if wanted or finished:
                yield self._chunk(torch.stack(ids, 1), torch.stack(log_probabilities, 1), state, decoding.num_actions)
            if finished:
                return

    def _all_ended(self, ids: list[Tensor]) -> bool:
        return self.variable_length and bool((torch.stack(ids) == self.eos).any(0).all())

    def generate_tokens(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: TokenDecoding, noise: Noise | None
    ) -> Iterator[tuple[Int64[Tensor, " batch"], Float[Tensor, " batch"]]]:
        """The next id of every row and its log-probability, again and again."""
        context, length = self.context(values, tasks), decoding.num_tokens or self.length
        random = None
        if noise is not None and not decoding.greedy:
            random = gumbel(noise.uniform(length, self.outputs)).to(context.device)
        last = torch.full((len(context),), self.bos, device=context.device)
        with torch.inference_mode():
            sequence = Generation(self.backbone, context, length)
        for place in range(length):
            with torch.inference_mode():
                embedded = F.embedding(last, self.embedding.weight) + self.positions[place]
                logits = self._logits(sequence.step(embedded))
                last = choose(logits, decoding, None if random is None else random[:, place])
                log_probability = logits.log_softmax(-1).gather(1, last[:, None])[:, 0]
            yield last, log_probability

    def _chunk(
        self,
        ids: Int64[Tensor, "batch tokens"],
        log_probabilities: Float[Tensor, "batch tokens"],
        state: Float[Tensor, "batch state"] | None,
        num_actions: int | None,
    ) -> Chunk:
        lengths = torch.full((len(ids),), ids.shape[1], device=ids.device)
        if not self.variable_length:
            tokens = Tokens(ids, lengths)
            actions, valid = self.tokenizer.try_decode(tokens, num_actions, state)
            return Chunk(actions, valid, lengths, tokens, log_probabilities)
        ended = ids == self.eos
        finished = ended.any(1)
        lengths = torch.where(finished, ended.int().argmax(1), lengths)
        tokens = Tokens(ids.where(Tokens(ids, lengths).real, 0), lengths)
        decodable = Tokens(tokens.ids, lengths.clamp(1, self.tokenizer.max_tokens))
        actions, valid = self.tokenizer.try_decode(decodable, num_actions, state)
        valid = valid & finished & (lengths > 0)
        counted = torch.arange(ids.shape[1], device=ids.device) <= lengths[:, None]
        return Chunk(
            actions.where(valid[:, None, None], torch.nan), valid, lengths, tokens, log_probabilities * counted
        )

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "longest": self.longest}

    def own_state(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("tokenizer.")}

    def save_files(self, directory: Path) -> None:
        super().save_files(directory)
        (directory / TOKENIZER_FOLDER).mkdir(exist_ok=True)
        self.tokenizer.save_files(directory / TOKENIZER_FOLDER)
