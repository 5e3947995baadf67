"""Kinds are open: a tokenizer and a quantizer that only this file knows go the whole way, with one line each."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.cli import main
from oat.data.episodes import STATE
from oat.errors import InvalidOption
from oat.export.loading import load_runtime
from oat.interfaces import Observation
from oat.nn.quantizer import Quantizer
from oat.nn.quantizers import QUANTIZERS
from oat.policies import AutoregressivePolicy, load_policy
from oat.tokenizers import TOKENIZERS, ActionSpace, BaseTokenizer, OATTokenizer, load_tokenizer
from oat.tokenizers.config import TokenizerConfig
from oat.tokenizers.tokens import Tokens
from tests.tokenizers.fitted import smooth_chunks

HORIZON, DIM = 8, 2


@dataclass(frozen=True)
class SignConfig(TokenizerConfig):
    """How a toy tokenizer halves."""

    label: ClassVar[str] = "Sign"

    halvings: int = 3
    """How often the range is halved."""


class SignTokenizer(BaseTokenizer):
    """Say for each dimension of a chunk's mean in which of a few parts of the range it lies."""

    kind = "sign"
    config_class = SignConfig

    def __init__(self, space: ActionSpace, config: SignConfig | None = None) -> None:
        super().__init__(space)
        self.config = config or SignConfig()

    @property
    def vocab_size(self) -> int:
        """Return how many parts there are."""
        return int(2**self.config.halvings)

    @property
    def max_tokens(self) -> int:
        """Return one token per dimension."""
        return self.space.model_dim

    def encode_normalized(
        self, actions: Float[Tensor, "batch time dim"], valid_mask: Bool[Tensor, "batch time"]
    ) -> Tokens:
        """Return the parts that the means lie in."""
        share = (actions.mean(1) + 1) / 2
        ids = (share * self.vocab_size).long().clamp(0, self.vocab_size - 1)
        return Tokens(ids, torch.full((len(ids),), self.max_tokens))

    def decode_normalized(
        self, tokens: Tokens, num_actions: int, noise: Float[Tensor, "batch time dim"] | None = None
    ) -> tuple[Float[Tensor, "batch num_actions dim"], Bool[Tensor, " batch"]]:
        """Return chunks that stay at their mean."""
        level = (tokens.ids + 0.5) / self.vocab_size * 2 - 1
        chunk = level[:, None].expand(-1, num_actions, -1)
        return chunk, torch.ones(chunk.shape[0], dtype=torch.bool)


class BinaryQuantizer(Quantizer):
    """Keep the sign of each latent number."""

    def __init__(self, levels: tuple[int, ...]) -> None:
        super().__init__()
        self._dim = len(levels)

    @property
    def dim(self) -> int:
        """Return the numbers of a latent vector."""
        return self._dim

    @property
    def vocab_size(self) -> int:
        """Return the number of sign patterns."""
        return int(2**self._dim)

    def position(self, latents: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return the latents squashed to (-1, 1)."""
        return torch.tanh(latents if latents.dtype == torch.float64 else latents.float())

    def values(self, positions: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return the positions as they are."""
        return positions

    def forward(self, latents: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n dim"]:
        """Return signs with the gradient of the positions."""
        position = self.position(latents)
        return position + (self.decode(self.encode(position)) - position).detach()

    def encode(self, positions: Float[Tensor, "*n dim"]) -> Int64[Tensor, "*n"]:
        """Return the pattern of signs as a number."""
        return ((positions > 0).long() << torch.arange(self._dim)).sum(-1)

    def decode(self, ids: Int64[Tensor, "*n"]) -> Float[Tensor, "*n dim"]:
        """Return -1 or 1 for each bit."""
        return (ids[..., None] >> torch.arange(self._dim) & 1).float() * 2 - 1

    def margin(self, positions: Float[Tensor, "*n dim"]) -> Float[Tensor, "*n"]:
        """Return the distance of the number nearest to 0."""
        return positions.abs().amin(-1)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    TOKENIZERS["sign"] = SignTokenizer
    QUANTIZERS["binary"] = BinaryQuantizer
    yield
    del TOKENIZERS["sign"], QUANTIZERS["binary"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    generator = np.random.default_rng(0)
    actions = np.cumsum(generator.normal(size=(240, DIM)), axis=0).astype(np.float32)
    states = generator.normal(size=(240, 3)).astype(np.float32)
    arrays: dict[str, Any] = {"actions": actions, STATE: states, "episode_ends": np.arange(30, 241, 30)}
    np.savez(tmp_path / "data.npz", **arrays)
    return tmp_path / "data.npz"


def oat(*words: str | Path) -> None:
    """Run a verb in this process, where the toys are registered."""
    main([*map(str, words)])


TRAINED: dict[str, tuple[str, ...]] = {
    "sign": ("--tokenizer", "sign", "--halvings", "2"),
    "binary": ("--grid", "binary", "--levels", "2", "2", "2", "--preset", "tiny", "--steps", "4", "--batch-size", "8"),
}


def test_a_tokenizer_and_a_quantizer_are_fitted_from_python() -> None:
    chunks = smooth_chunks(60, horizon=HORIZON, dim=DIM)
    sign = SignTokenizer.fit(chunks, halvings=4)
    assert (sign.vocab_size, sign.max_tokens) == (16, DIM)
    assert sign.decode(sign.encode(chunks)).shape == chunks.shape
    with pytest.raises(InvalidOption, match="fitted at once"):
        SignTokenizer.fit(chunks, minutes=1)
    binary = OATTokenizer.fit(chunks, preset="tiny", steps=2, grid="binary", levels=(2, 2, 2), progress=False)
    assert binary.vocab_size == 8
    assert int(binary.encode(chunks).ids.max()) < 8


@pytest.mark.parametrize("name", TRAINED)
def test_both_go_the_whole_way(name: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Fit, inspect, train, load, act and export, by the same commands as our own kinds."""
    run, policy = tmp_path / "tokenizer", tmp_path / "policy"
    oat("fit", "--data", data, "--out", run, "--action-horizon", str(HORIZON), *TRAINED[name])
    tokenizer = load_tokenizer(run)
    assert tokenizer.kind == ("sign" if name == "sign" else "oat")
    capsys.readouterr()
    oat("inspect", run, "--data", data, "--json", "--picture", tmp_path / "picture.png")
    own, *others = json.loads(capsys.readouterr().out)
    assert own["kind"] == tokenizer.kind
    assert {other["kind"] for other in others} == {"bin", "fast", "rvq"}
    recipe = ("--preset", "tiny", "--steps", "4", "--batch-size", "8", "--validate-every", "2")
    oat("train", "--data", data, "--tokenizer", run, "--out", policy, *recipe)
    loaded = load_policy(policy)
    assert isinstance(loaded, AutoregressivePolicy)
    assert loaded.tokenizer.kind == tokenizer.kind
    observation = Observation({STATE: np.zeros((1, 2, 3), np.float32)}, (loaded.observed.tasks[0],))
    assert loaded.predict_chunk(observation).actions.shape == (1, HORIZON, DIM)
    oat("export", policy, "--out", tmp_path / "export")
    assert load_runtime(tmp_path / "export").predict_chunk(observation).actions.shape == (1, HORIZON, DIM)


def test_the_help_shows_the_options_of_a_new_kind(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        oat("fit", "--tokenizer", "sign", "--help")
    text = capsys.readouterr().out
    assert "--halvings" in text
    assert "How often the range is halved. (default: 3)" in " ".join(text.replace("│", " ").split())
    assert not any(other in text for other in ("--bins", "--levels", "--steps"))
    with pytest.raises(SystemExit):
        oat("fit", "--data", "x", "--out", "y", "--halvings", "2")
    assert "--halvings means nothing to oat, it is for sign" in capsys.readouterr().err
