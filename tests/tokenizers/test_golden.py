"""Checkpoints of an older version still load, and mean what they meant.

They were written by the code before quantizers had an interface and configurations a module of their own.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from oat.io.checkpoints import CONFIG_FILE, WEIGHTS_FILE
from oat.tokenizers import TOKENIZERS, load_tokenizer

GOLDEN = Path(__file__).parent / "golden"
EXPECTED = json.loads((GOLDEN / "expected.json").read_text())


@pytest.mark.parametrize("kind", ["bin", "fast", "quest", "oat"])
def test_an_old_checkpoint_gives_the_same_tokens_and_actions(kind: str) -> None:
    tokenizer = load_tokenizer(GOLDEN / kind)
    assert type(tokenizer) is TOKENIZERS[kind]
    assert tokenizer.is_fitted
    tokens = tokenizer.encode(np.array(EXPECTED["chunks"], np.float32))
    assert tokens.tolist() == EXPECTED[kind]["tokens"]
    np.testing.assert_allclose(tokenizer.decode(tokens).numpy(), EXPECTED[kind]["actions"], atol=1e-3)


@pytest.mark.parametrize("kind", ["bin", "fast", "quest", "oat"])
def test_saved_again_it_is_the_same_file(kind: str, tmp_path: Path) -> None:
    """Neither the weights' names nor the configuration's fields have changed, so older versions can read it, too."""
    load_tokenizer(GOLDEN / kind).save(tmp_path / kind)
    old, new = (json.loads((folder / kind / CONFIG_FILE).read_text()) for folder in (GOLDEN, tmp_path))
    new.pop("config_sha256")  # which older versions pass over
    assert new == old
    assert (tmp_path / kind / WEIGHTS_FILE).read_bytes() == (GOLDEN / kind / WEIGHTS_FILE).read_bytes()
