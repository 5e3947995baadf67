"""Residual prototypes: token k names the prototype nearest to what the tokens before it leave over.

Residual vector quantization of whole chunks, with codebooks by k-means: no network, fitted in seconds. Every prefix
decodes, to the sum of its prototypes. One prototype of each codebook is zero, so that a further token never makes a
chunk worse: the order holds chunk by chunk.
"""

import math

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.errors import CheckpointError
from oat.nn.kmeans import kmeans, nearest
from oat.nn.lattice import Lattice
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.config import RVQConfig
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Tokens

_BLOCKS = 10  # of neighbouring chunks, alternately in one half and in the other


class RVQTokenizer(BaseTokenizer):
    """Give ordered tokens: `decode` takes any prefix of 1 … H_l tokens, of different lengths in one batch.

    Steps past an episode's end are taken for its last action going on.
    """

    kind = "rvq"
    config_class = RVQConfig
    prefix_decodable = True

    center: Tensor
    prototypes: Tensor

    def __init__(self, space: ActionSpace, config: RVQConfig | None = None) -> None:
        super().__init__(space)
        self.config = config or RVQConfig()
        numbers = space.action_horizon * space.model_dim
        self.register_buffer("center", torch.zeros(numbers))
        self.register_buffer("prototypes", torch.zeros(self.max_tokens, self.vocab_size, numbers))

    @property
    def vocab_size(self) -> int:
        """Return how many prototypes each codebook has."""
        return math.prod(self.config.levels)

    @property
    def max_tokens(self) -> int:
        """Return H_l, the codebooks."""
        return self.config.latent_horizon

    def lattice(self) -> Lattice:
        """Return the grid that every codebook's prototypes were sorted into: neighbours there are alike."""
        return Lattice(self.config.levels)

    def check_restored(self) -> None:
        """Raise `CheckpointError` unless each codebook has the zero that stands for no change."""
        if not bool((self.prototypes == 0).all(2).any(1).all()):
            raise CheckpointError("RVQ needs a prototype of zero in each codebook, and one has none")

    def fit_normalized(self, chunks: Float[Tensor, "chunks time dim"]) -> None:
        """Find the prototypes of each codebook in what the codebooks before it leave over of the chunks.

        Of chunks that codebooks were fitted to less is left than of others, which later codebooks must be for as well:
        they are fitted to both. What is left of others is known from codebooks that were fitted to one half each.
        """
        generator = torch.Generator().manual_seed(0)
        remaining = chunks.flatten(1)
        self.center.copy_(remaining.mean(0))
        known = unknown = remaining - self.center
        # Blocks of neighbours rather than every other chunk: chunks overlap their neighbours.
        half = torch.arange(len(chunks), device=chunks.device) * _BLOCKS // max(1, len(chunks)) % 2 == 0
        for codebook in self.prototypes:
            unsorted = self._codebook(torch.cat([known, unknown]), generator)
            codebook.copy_(unsorted[sort_into(self.lattice(), unsorted)])
            known = known - codebook[nearest(known, codebook)]
            left = torch.empty_like(unknown)
            for part, other in ((half, ~half), (~half, half)):
                fitted = self._codebook(unknown[other if bool(other.any()) else part], generator)
                left[part] = unknown[part] - fitted[nearest(unknown[part], fitted)]
            unknown = left

    def _codebook(
        self, remaining: Float[Tensor, "chunks numbers"], generator: torch.Generator
    ) -> Float[Tensor, "vocab numbers"]:
        """Return prototypes of what is left over, the last of them zero."""
        found = kmeans(remaining, self.vocab_size - 1, self.config.iterations, generator)
        return torch.cat([found, torch.zeros_like(found[:1])])

    def encode_normalized(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Tokens:
        """Return the ids of the nearest prototypes, one codebook after the other, or of zero where that is better.

        In float64: sums in float32 depend on the batch's size, and so would the ids of chunks between two prototypes.
        """
        wanted = hold_last(actions, valid_mask).flatten(1).double()

        def errors(decoded: Float[Tensor, "batch numbers"]) -> Float[Tensor, " batch"]:
            # As they are measured: within the range of the data, and over the steps that there are.
            chunks = decoded.view_as(actions).clamp(self.normalizer.low, self.normalizer.high)
            return ((chunks - actions).square().sum(-1) * valid_mask).sum(1)

        decoded = self.center.double().expand_as(wanted)
        best = errors(decoded)
        ids = []
        for codebook in self.prototypes.double():
            chosen = nearest(wanted - decoded, codebook)
            refined = decoded + codebook[chosen]
            reached = errors(refined)
            better = reached < best
            nothing = (codebook == 0).all(1).int().argmax()
            ids.append(chosen.where(better, nothing))
            decoded = refined.where(better[:, None], decoded)
            best = torch.minimum(best, reached)
        stacked = torch.stack(ids, dim=1)
        return Tokens(stacked, torch.full((len(stacked),), self.max_tokens, device=stacked.device))

    def decode_normalized(
        self, tokens: Tokens, num_actions: int, noise: Float[Tensor, "batch time dim"] | None = None
    ) -> tuple[Float[Tensor, "batch num_actions dim"], Bool[Tensor, " batch"]]:
        """Return the sum of the prototypes that each row's tokens name; every sequence decodes."""
        width = min(tokens.ids.shape[1], self.max_tokens)  # a row's padding may make the ids wider than any sequence
        places = torch.arange(width, device=tokens.ids.device)
        kept = (places < tokens.lengths[:, None])[..., None]
        numbers = num_actions * self.space.model_dim  # time-major: the first actions are the first numbers
        named = self.prototypes[places, tokens.ids[:, :width], :numbers]
        chunks = self.center[:numbers] + (named * kept).sum(1)
        valid = torch.ones(chunks.shape[0], dtype=torch.bool, device=chunks.device)
        return chunks.reshape(-1, num_actions, self.space.model_dim), valid


def hold_last(
    actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
) -> Float[Tensor, "batch time dim"]:
    """Return chunks in which every invalid step repeats the last valid one before it."""
    steps = torch.arange(actions.shape[1], device=actions.device)
    last = torch.where(valid_mask, steps, 0).cummax(1).values
    return actions.gather(1, last[..., None].expand_as(actions))


def sort_into(lattice: Lattice, points: Float[Tensor, "vocab numbers"]) -> Int64[Tensor, " vocab"]:
    """Return the order in which points become a lattice's codes, so that neighbours on it are near to each other.

    Along the points' first principal component they are cut into as many equal parts as the first axis has levels,
    each part along the second component into as many as the second axis has, and so on.
    """
    centered = points.double() - points.double().mean(0)
    axes = len(lattice.levels)
    directions = torch.linalg.svd(centered, full_matrices=False).Vh[:axes]
    places = torch.nn.functional.pad(centered @ directions.T, (0, max(0, axes - len(directions))))
    parts = torch.arange(len(points))[None]
    for axis, size in enumerate(lattice.levels):
        along = places[parts, axis].argsort(dim=1, stable=True)
        parts = parts.gather(1, along).reshape(len(parts) * size, -1)
    # The first axis was cut first, but is the fastest digit of an id.
    return parts.reshape(lattice.levels).permute(*reversed(range(axes))).flatten()
