"""RVQ: residual prototypes, their order chunk by chunk, and the lattice that they are sorted into."""

import copy
from pathlib import Path

import pytest
import torch

from oat.errors import CheckpointError, InvalidOption
from oat.nn.kmeans import kmeans, nearest
from oat.nn.lattice import Lattice
from oat.tokenizers import RVQTokenizer
from oat.tokenizers.config import RVQConfig
from oat.tokenizers.measures import ChunkBatch, distortions
from oat.tokenizers.rvq import hold_last, sort_into
from tests.tokenizers.fitted import fitted, smooth_chunks


def errors_of_prefixes(
    tokenizer: RVQTokenizer, chunks: torch.Tensor, valid: torch.Tensor | None = None
) -> torch.Tensor:
    """Mean squared errors (chunks, prefixes) in model space, as they are measured everywhere."""
    everything = torch.ones(chunks.shape[:2], dtype=torch.bool) if valid is None else valid
    return distortions(tokenizer, ChunkBatch(chunks, everything, None))


@pytest.fixture(scope="module")
def tokenizer() -> RVQTokenizer:
    return RVQTokenizer.fit(smooth_chunks(2000), levels=(5, 4, 3), validation=0.0, progress=False)


@pytest.mark.parametrize("limit", [5.0, 0.7])
def test_no_token_makes_any_chunk_worse(limit: float) -> None:
    """Not only on average, also of chunks that it was not fitted to, that saturate, or end before the chunk does."""
    taught = smooth_chunks(2000).clamp(-limit, limit)
    tokenizer = RVQTokenizer.fit(taught, levels=(5, 4, 3), validation=0.0, progress=False)
    chunks = smooth_chunks(500, seed=1).clamp(-limit, limit)
    valid = torch.arange(chunks.shape[1]) < torch.randint(1, 30, (500, 1), generator=torch.Generator().manual_seed(0))
    errors = errors_of_prefixes(tokenizer, chunks, valid)
    assert bool((errors.diff(dim=1) <= 1e-6).all())
    means = errors.mean(0)
    assert bool((means[1:] < 0.97 * means[:-1]).all())


def test_the_first_token_is_the_nearest_prototype(tokenizer: RVQTokenizer) -> None:
    chunks = smooth_chunks(50, seed=2)
    flat = tokenizer.to_model_space(chunks).flatten(1) - tokenizer.center
    every = torch.cdist(flat.double(), tokenizer.prototypes[0].double())
    assert torch.equal(tokenizer.encode(chunks).ids[:, 0], every.argmin(1))


def test_ids_do_not_depend_on_the_batch(tokenizer: RVQTokenizer) -> None:
    chunks = smooth_chunks(300, seed=3)
    whole = tokenizer.encode(chunks).ids
    assert torch.equal(whole, torch.cat([tokenizer.encode(chunks[i : i + 1]).ids for i in range(len(chunks))]))


def test_invalid_steps_do_not_matter(tokenizer: RVQTokenizer) -> None:
    chunks = smooth_chunks(20, seed=4)
    valid = torch.arange(chunks.shape[1]) < torch.arange(1, 21)[:, None].clamp(max=chunks.shape[1])
    others = torch.where(valid[..., None], chunks, 0.5 * chunks.flip(0))
    assert torch.equal(tokenizer.encode(chunks, valid).ids, tokenizer.encode(others, valid).ids)
    held = hold_last(chunks, valid)
    assert torch.equal(held[0], chunks[0, :1].expand_as(held[0]))


def test_near_prototypes_are_neighbours_on_the_lattice() -> None:
    lattice = Lattice((8, 5))
    points = torch.rand(40, 2, generator=torch.Generator().manual_seed(0)) * torch.tensor([10.0, 1.0])
    order = sort_into(lattice, points)
    assert sorted(order.tolist()) == list(range(40))
    placed = points[order]
    along = lattice.coordinates(torch.arange(40))[:, 0].double()
    assert abs(float(torch.corrcoef(torch.stack([along, placed[:, 0].double()]))[0, 1])) > 0.95
    ids = torch.arange(40)
    around = lattice.neighbours(ids)
    near = (placed[around] - placed[:, None]).norm(dim=-1)[around != ids[:, None]].mean()
    assert float(near) < 0.5 * float(torch.cdist(placed, placed).mean())


def test_more_axes_than_directions() -> None:
    assert sorted(sort_into(Lattice((2, 2, 2)), torch.arange(8.0)[:, None]).tolist()) == list(range(8))


def test_fewer_chunks_than_prototypes() -> None:
    tokenizer = RVQTokenizer.fit(smooth_chunks(30), validation=0.0, progress=False)
    assert float(errors_of_prefixes(tokenizer, smooth_chunks(30))[:, 1].mean()) < 0.01


def test_prototypes_are_found_again() -> None:
    generator = torch.Generator().manual_seed(0)
    centers = torch.tensor([[0.0, 0.0], [5.0, 0.0], [0.0, 5.0]])
    points = (centers[torch.arange(300) % 3] + 0.1 * torch.randn(300, 2, generator=generator)).contiguous()
    found = kmeans(points, 6, 20, generator)  # more centres than groups: every group has one
    assert float(torch.cdist(centers, found).amin(1).max()) < 0.2
    assert nearest(points[:0], found).shape == (0,)


def test_what_is_learned_has_its_loss_measured_for_every_prefix() -> None:
    tokenizer = RVQTokenizer.fit(smooth_chunks(400), levels=(5, 4), validation=0.2, progress=False)
    measures = tokenizer.training_record.measures
    assert measures is not None
    assert list(measures.mse_of_prefix) == list(range(1, 9))


@pytest.mark.parametrize("options", [{"latent_horizon": 0}, {"iterations": 0}, {"levels": ()}, {"levels": (8, 1)}])
def test_impossible_sizes(options: dict[str, object]) -> None:
    with pytest.raises(InvalidOption, match="at least"):
        RVQConfig(**options)  # type: ignore[arg-type]


def test_a_checkpoint_without_a_zero_is_refused(tmp_path: Path, tokenizer: RVQTokenizer) -> None:
    damaged = copy.deepcopy(tokenizer)
    damaged.prototypes += 1
    damaged.save(tmp_path / "rvq")
    with pytest.raises(CheckpointError, match="prototype of zero in each codebook"):
        RVQTokenizer.load(tmp_path / "rvq")


def test_search_is_possible() -> None:
    """Its codes are points of a lattice, so that neighbouring ones can be tried."""
    tokenizer = fitted("rvq")
    chunks = smooth_chunks(4, seed=5)
    assert tokenizer.encode(chunks, search=1).ids.shape == (4, 8)
