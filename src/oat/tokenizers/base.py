"""The base class of action tokenizers: actions → tokens → actions, and what each kind promises (paper, section III).

P.1 short: `max_tokens` per chunk of `action_horizon` × `action_dim` numbers. P.2 total: every sequence of valid ids of
an allowed length decodes. P.3 ordered: every prefix decodes, coarse motion first.
"""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.data.normalize import Normalizer
from oat.data.transforms import ActionTransform
from oat.errors import InvalidOption
from oat.nn.lattice import Lattice
from oat.tokenizers.checks import check_actions, check_lengths, check_noise, check_state, check_tokens
from oat.tokenizers.config import TokenizerConfig
from oat.tokenizers.decoder import SinglePassDecoder
from oat.tokenizers.files import TokenizerFiles
from oat.tokenizers.search import SEARCHED_AT_ONCE, CodeSearch
from oat.tokenizers.tokens import Array, TokenLike, Tokens
from oat.tokenizers.tolerance import MaxError
from oat.tokenizers.unusual import errors_by_dimension, warn_of_unusual

Tokenizer = TypeVar("Tokenizer", bound="BaseTokenizer")


class BaseTokenizer(TokenizerFiles):
    """Turn action chunks into tokens and back: check them, bring them to model space, leave the rest to the kind.

    A kind says what is particular about it in the fields and methods below; nothing else asks for its name.
    """

    caches_tokens: ClassVar[bool] = True
    """Whether a policy's training keeps tokens on disk, rather than computing them again for every batch."""
    not_a_graph: ClassVar[str | None] = None
    """Why decoding cannot be exported as a graph of tensor operations, if so."""

    @classmethod
    def fit(
        cls: type[Tokenizer],
        chunks: Array,
        valid_mask: Array | None = None,
        states: Array | None = None,
        *,
        preset: str = "cpu",
        steps: int | None = None,
        minutes: float | None = None,
        seed: int = 0,
        config: TokenizerConfig | None = None,
        transform: str | ActionTransform = "identity",
        normalization: str | Normalizer = "min_max",
        validation: float = 0.1,
        device: str = "cpu",
        progress: bool = True,
        **options: Any,
    ) -> Tokenizer:
        """Return a tokenizer fitted to chunks (N, H_a, D_a) in action units.

        `valid_mask` (N, H_a) is False for steps past an episode's end, `states` (N, D_s) is what a transform refers
        to. The last chunks, as many as the share `validation`, are held out: the errors measured on them are in
        `training_record`. The last ones rather than any, because chunks may overlap their neighbours. `normalization`
        is min_max, quantile, mean_std or none, or a normaliser to share with another tokenizer.

        A kind that is trained takes `preset`'s size and recipe. `steps` is the number of optimiser steps; 0 leaves the
        initial weights, which is enough to measure speed. `minutes` trains for that wall-clock time instead: the
        schedule follows the elapsed share of it, and the steps taken are recorded. `options` are any other options
        of `oat fit` by name, such as `levels=(8, 6, 5)` or `batch_size=16`; `config` replaces the preset's model.
        """
        # Training stands above tokenizers, and those who only load one should not have to import it.
        from oat.training.fitting import FitOptions, fit_chunks

        how = FitOptions(preset, steps, minutes, seed, config, transform, normalization, validation, device, progress)
        return fit_chunks(cls, chunks, valid_mask, states, how, options)

    def fit_normalized(self, chunks: Float[Tensor, "chunks time dim"]) -> None:
        """Learn from chunks in model space what no training of weights does, such as FAST's merges."""

    @classmethod
    def learns_from_chunks(cls) -> bool:
        """Return whether `fit_normalized` does anything: where it does not, no chunks need to be read for it."""
        return cls.fit_normalized is not BaseTokenizer.fit_normalized

    def trained_prefixes(self) -> Sequence[int]:
        """Return the prefix lengths that training is about: by their errors the best checkpoint is chosen."""
        return self.prefix_lengths()

    def prefix_lengths(self) -> Sequence[int]:
        """Return the prefix lengths that decode: all for an ordered tokenizer, the whole for others."""
        return range(1, self.max_tokens + 1) if self.prefix_decodable else (self.max_tokens,)

    def lattice(self) -> Lattice | None:
        """Return the grid whose points the tokens are, where near tokens mean nearly the same."""
        return None

    def foldable_decoder(self) -> SinglePassDecoder | None:
        """Return the single-pass decoder that an exporter can fold into fewer operations, where there is one."""
        return None

    @property
    def device(self) -> torch.device:
        """Return the device that the tokenizer computes on, and moves its inputs to."""
        return self.normalizer.center.device

    @property
    def action_horizon(self) -> int:
        """Return H_a, the number of actions in a chunk."""
        return self.space.action_horizon

    @property
    def action_dim(self) -> int:
        """Return D_a, the number of values in an action as the data has it."""
        return self.space.action_dim

    @property
    def uses_noise(self) -> bool:
        """Return whether decoding starts from noise, which can then be given per row."""
        return False

    @abstractmethod
    def encode_normalized(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Tokens:
        """Return the tokens of chunks in model space."""

    @abstractmethod
    def decode_normalized(
        self, tokens: Tokens, num_actions: int, noise: Float[Tensor, "batch time dim"] | None = None
    ) -> tuple[Float[Tensor, "batch num_actions dim"], Bool[Tensor, " batch"]]:
        """Return chunks in model space, and which rows decoded; the others' values are meaningless."""

    @torch.no_grad()
    def encode(
        self,
        actions: Array,
        valid_mask: Array | None = None,
        state: Array | None = None,
        max_error: MaxError | float | None = None,
        *,
        search: int = 0,
        measure: bool = False,
    ) -> Tokens:
        """Return the tokens of chunks (batch, H_a, D_a) in action units; invalid steps are left out where possible.

        Values outside the range seen in fitting are encoded as the nearest inside it; `Tokens.clipped` tells how many.
        With `max_error`, an ordered tokenizer gives each chunk only as many tokens as it takes to stay within it.
        `search` is how many times each token of an ordered tokenizer may move to a neighbouring code that makes the
        decoded prefixes better; none of them gets worse, and a chunk takes hundreds of decodings.
        With `measure`, chunks are decoded again: `Tokens.errors` holds how far off they are, and a warning,
        `oat.errors.UnusualActions`, tells of errors beyond those of 99 % of the chunks held out in fitting.
        """
        self.check_fitted()
        self.check_search(search)
        chunks, valid = check_actions(actions, valid_mask, self.space, self.device)
        given = check_state(state, len(chunks), self.space, self.device)
        wanted = self.to_model_space(chunks, given)
        # Bin and FAST have no token for values outside, and networks never saw any.
        bounded = wanted.clamp(self.normalizer.low, self.normalizer.high)
        # Normalising rounds the data's own extremes: a difference of that size is not clipping.
        outside = ((bounded - wanted).abs() > 1e-5) & valid[..., None]
        tokens = self.encode_normalized(bounded, valid)
        if search:
            tokens = self._improved(tokens, wanted, valid, search)
        tokens = Tokens(tokens.ids, tokens.lengths, outside.float().mean((1, 2)))
        if max_error is not None:
            tolerance = max_error if isinstance(max_error, MaxError) else MaxError(float(max_error))
            tokens = replace(tokens, lengths=self._shortest_lengths(tokens, chunks, valid, given, tolerance))
        if not measure:
            return tokens
        errors = errors_by_dimension(self._bounded(tokens), wanted, valid)
        warn_of_unusual(errors, self.training_record.usual_error())
        return replace(tokens, errors=errors)

    def check_search(self, sweeps: int) -> None:
        """Raise `InvalidOption` for a search that this kind cannot make."""
        if sweeps < 0:
            raise InvalidOption(f"search must be ≥ 0, got {sweeps}")
        if sweeps and (self.lattice() is None or not self.prefix_decodable):
            raise InvalidOption(f"{self.kind} has no prefixes of lattice codes: search needs a tokenizer such as oat")

    @torch.inference_mode()
    def _bounded(self, tokens: Tokens) -> Float[Tensor, "batch time dim"]:
        """Return what tokens decode to in model space, within the range of the data as actions are."""
        decoded, _ = self.decode_normalized(tokens, self.action_horizon)
        return decoded.clamp(self.normalizer.low, self.normalizer.high)

    def _improved(
        self,
        tokens: Tokens,
        chunks: Float[Tensor, "batch time dim"],
        valid: Bool[Tensor, "batch time"],
        sweeps: int,
    ) -> Tokens:
        """Return the tokens of chunks in model space after a search, a block of chunks at a time."""
        lattice = self.lattice()
        assert lattice is not None
        parts = [slice(i, i + SEARCHED_AT_ONCE) for i in range(0, len(tokens), SEARCHED_AT_ONCE)]
        searches = [CodeSearch(self._bounded, lattice, chunks[part], valid[part]) for part in parts]
        found = [each.improve(tokens.ids[part], sweeps) for each, part in zip(searches, parts, strict=True)]
        return replace(tokens, ids=torch.cat(found)) if found else tokens

    def _shortest_lengths(
        self, tokens: Tokens, chunks: Tensor, valid: Tensor, state: Tensor | None, tolerance: MaxError
    ) -> Int64[Tensor, " batch"]:
        """Return each chunk's smallest prefix whose reconstruction is good enough; all prefixes decode in one pass."""
        if not self.prefix_decodable:
            raise InvalidOption(f"{self.kind} has no prefixes: max_error needs an ordered tokenizer")
        batch = len(tokens)
        most = self.max_tokens
        every = Tokens(
            tokens.ids.repeat_interleave(most, 0), torch.arange(1, most + 1, device=tokens.ids.device).repeat(batch)
        )
        states = None if state is None else state.repeat_interleave(most, 0)
        decoded, _ = self.try_decode(every, state=states)
        decoded = decoded.reshape(batch, most, *decoded.shape[1:])
        return tolerance.shortest(tolerance.measure(decoded, chunks[:, None], valid[:, None]))

    def decode(
        self, tokens: TokenLike, num_actions: int | None = None, state: Array | None = None, noise: Array | None = None
    ) -> Float[Tensor, "batch num_actions dim"]:
        """Return chunks in action units, or their first actions; a sequence that does not decode is an error."""
        actions, valid = self.try_decode(tokens, num_actions, state, noise)
        if not bool(valid.all()):
            self.explain_failure(self.checked(tokens)[~valid])
        return actions

    @torch.no_grad()
    def try_decode(
        self, tokens: TokenLike, num_actions: int | None = None, state: Array | None = None, noise: Array | None = None
    ) -> tuple[Float[Tensor, "batch num_actions dim"], Bool[Tensor, " batch"]]:
        """Return decoded chunks, and for each row whether it decoded, so that one bad row does not lose the others.

        Rows that did not decode are NaN: no robot can mistake them for actions.
        """
        self.check_fitted()
        checked = self.checked(tokens)
        count = self.action_horizon if num_actions is None else num_actions
        if not 1 <= count <= self.action_horizon:
            raise InvalidOption(f"num_actions must be in 1…{self.action_horizon}, got {count}")
        start = check_noise(noise, len(checked), self.space, self.device, self.uses_noise)
        given = check_state(state, len(checked), self.space, self.device)
        # Tensors made in inference mode cannot be used where gradients are recorded: what is returned is computed, or
        # cloned, outside of it.
        with torch.inference_mode():
            model_space, valid = self.decode_normalized(checked, count, start)
        actions = self.space.to_actions(model_space, self.normalizer, given)
        # Zeros would be actions that a robot executes.
        return actions.where(valid[:, None, None], torch.nan), valid.clone()

    def checked(self, tokens: TokenLike) -> Tokens:
        """Return tokens of any form on this tokenizer's device, or raise `InvalidTokens`."""
        known = check_tokens(tokens, self.vocab_size, self.device)
        self.check_lengths(known.lengths)
        return known

    def check_lengths(self, lengths: Int64[Tensor, " batch"]) -> None:
        """Raise `InvalidTokens` for lengths that this kind never has."""
        # A kind that is not total, such as FAST, has sequences of many lengths: which of them decode, decoding tells.
        shortest = 1 if self.prefix_decodable or not self.total else self.max_tokens
        check_lengths(lengths, shortest, self.max_tokens, self.kind)

    def explain_failure(self, tokens: Tokens) -> None:
        """Raise the error for rows that did not decode; kinds that are not total say what is wrong with them."""
        raise AssertionError(f"{self.kind} is total")

    def to_model_space(
        self, actions: Float[Tensor, "batch time action"], state: Float[Tensor, "batch state"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        """Return actions transformed and normalised, as models see them and errors are measured."""
        return self.normalizer.normalize(self.space.transform.forward(actions, state))
