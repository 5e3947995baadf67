"""The processor is the library's tokenizer, called as FAST's: in a Python without `oat`, and from a Hub."""

import filecmp
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from oat.data.transforms import Relative
from oat.errors import CheckpointError, InvalidActions, InvalidOption, InvalidTokens, UnknownName
from oat.huggingface.processor import OATProcessor
from oat.io.checkpoints import CARD_FILE
from oat.nn.width import Width
from oat.tokenizers.config import DecoderConfig
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.oat import OATTokenizer
from oat.tokenizers.space import ActionSpace
from tests.huggingface.alone import link_packages, run_alone
from tests.huggingface.hub import serve_hub
from tests.io.test_model_cards import run_example
from tests.policies.small import tokenizer_of
from tests.tokenizers.fitted import DIM, HORIZON, fitted, smooth_chunks

FILES = ["README.md", "config.json", "model.safetensors", "processing_oat.py", "processor_config.json"]

_CODE_AND_DECODE = """
import json, sys
from pathlib import Path
import numpy as np, torch
from transformers import AutoProcessor

torch.set_num_threads(1)
folder = Path(sys.argv[1])
given = np.load(folder / "given.npz")
ragged = json.loads((folder / "ragged.json").read_text())
for name in ("plain", "flow", "relative"):
    tokenizer = AutoProcessor.from_pretrained(folder / name, trust_remote_code=True)
    state = {"state": given["state"]} if name == "relative" else {}
    tokens = tokenizer(given["actions"], **state)
    (folder / f"{name}.json").write_text(json.dumps(tokens))
    decoded = {"whole": tokenizer.decode(tokens, time_horizon=16, action_dim=3, **state),
               "first": tokenizer.decode(tokens, time_horizon=5, **state)}
    if name != "relative":
        decoded["ragged"] = tokenizer.decode(ragged)
    np.savez(folder / f"{name}.npz", **decoded)
    tokenizer.save_pretrained(folder / f"{name}-again")
assert not any(name.split(".")[0] in ("oat", "jaxtyping", "einops", "accelerate") for name in sys.modules)
"""

_FIT = """
import json, sys, warnings
from pathlib import Path
import numpy as np, torch
from transformers import AutoProcessor

torch.set_num_threads(1)
folder = Path(sys.argv[1])
chunks = np.load(folder / "chunks.npy")
tokenizer = AutoProcessor.from_pretrained(folder / "plain", trust_remote_code=True)
before = torch.random.get_rng_state()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    options = {"preset": "tiny", "steps": 80}
    fitted = tokenizer.fit(list(chunks), scale=10, vocab_size=256, time_horizon=16, action_dim=3, **options)
assert ["no scale" in str(warning.message) for warning in caught] == [True]
assert torch.equal(torch.random.get_rng_state(), before)
fitted.save_pretrained(folder / "fitted")
(folder / "fitted.json").write_text(json.dumps(fitted(chunks[:50])))
"""

_PUSH = """
import json, sys
import numpy as np
from transformers import AutoProcessor

tokenizer = AutoProcessor.from_pretrained(sys.argv[1], trust_remote_code=True)
tokenizer.push_to_hub("me/oat", private=True)
chunks = np.load(sys.argv[2])
loaded = AutoProcessor.from_pretrained("me/oat", trust_remote_code=True)
assert loaded(chunks) == tokenizer(chunks)
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return link_packages(tmp_path_factory.mktemp("alone") / "packages")


def _tokenizers() -> dict[str, OATTokenizer]:
    """Untrained, but they tell chunks apart; one decodes by a flow, one is relative to the state."""
    plain = tokenizer_of("oat")
    assert isinstance(plain, OATTokenizer)
    torch.manual_seed(0)
    small = replace(plain.config, width=Width(32, 16))
    flow = OATTokenizer(plain.space, replace(small, decoder=DecoderConfig("flow", layers=1)))
    space = ActionSpace(HORIZON, DIM, Relative(dims=(0, 2), state_dims=(1, 0)), state_dim=2)
    relative = OATTokenizer(space, small)
    for tokenizer in (flow, relative):
        tokenizer.normalizer = plain.normalizer
        torch.nn.init.normal_(tokenizer.decoder.head.weight, std=0.1)
        torch.nn.init.normal_(tokenizer.encoder.from_action.weight)  # type: ignore[arg-type,union-attr]
    return {"plain": plain, "flow": flow.eval(), "relative": relative.eval()}


def test_without_oat_it_gives_the_very_same_tokens_and_actions(packages: Path, tmp_path: Path) -> None:
    tokenizers, actions = _tokenizers(), smooth_chunks(120, seed=1).numpy() * 1.2
    generator = np.random.default_rng(0)
    state = generator.normal(size=(120, 2)).astype(np.float32)
    np.savez(tmp_path / "given.npz", actions=actions, state=state)
    ragged = [generator.integers(0, 1000, size=length).tolist() for length in (1, 8, 3, 30, 2, 9)]
    (tmp_path / "ragged.json").write_text(json.dumps(ragged))
    for name, tokenizer in tokenizers.items():
        tokenizer.save_pretrained(tmp_path / name)
        assert sorted(file.name for file in (tmp_path / name).iterdir()) == FILES
    run_alone(packages, _CODE_AND_DECODE, tmp_path, HF_HOME=str(tmp_path / "hf"), HF_HUB_OFFLINE="1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for name, tokenizer in tokenizers.items():
            given: dict[str, Any] = {"state": state} if name == "relative" else {}
            tokens = tokenizer.encode(actions, **given)
            assert json.loads((tmp_path / f"{name}.json").read_text()) == tokens.tolist()
            assert len(set(map(tuple, tokens.tolist()))) > 60
            found = np.load(tmp_path / f"{name}.npz")
            assert np.array_equal(found["whole"], tokenizer.decode(tokens, **given).numpy())
            assert np.array_equal(found["first"], tokenizer.decode(tokens, num_actions=5, **given).numpy())
            if name != "relative":  # a chunk has eight tokens: what follows them is left out
                assert np.array_equal(found["ragged"], tokenizer.decode([row[:8] for row in ragged]).numpy())
    finally:
        torch.set_num_threads(threads)
    for name in tokenizers:
        same, *different = filecmp.cmpfiles(tmp_path / name, tmp_path / f"{name}-again", FILES, shallow=False)
        assert (sorted(same), different) == (FILES, [[], []])


def test_without_oat_it_can_be_fitted(packages: Path, tmp_path: Path) -> None:
    chunks = smooth_chunks(600, seed=2).numpy() + 5.0
    np.save(tmp_path / "chunks.npy", chunks)
    _tokenizers()["plain"].save_pretrained(tmp_path / "plain")
    run_alone(packages, _FIT, tmp_path, HF_HOME=str(tmp_path / "hf"), HF_HUB_OFFLINE="1")
    tokenizer = load_tokenizer(tmp_path / "fitted")
    assert isinstance(tokenizer, OATTokenizer)
    assert (tokenizer.action_horizon, tokenizer.action_dim, tokenizer.vocab_size) == (HORIZON, DIM, 252)
    assert tokenizer.encode(chunks[:50]).tolist() == json.loads((tmp_path / "fitted.json").read_text())
    recorded = tokenizer.training_record.measures
    assert recorded is not None
    measures = recorded.mse_of_prefix
    silence = float(tokenizer.to_model_space(torch.from_numpy(chunks[540:])).square().mean())
    assert measures[1] < 0.6 * silence
    assert measures[8] < 0.5 * silence
    decoded = tokenizer.decode(tokenizer.encode(chunks[540:]))
    assert abs(float(decoded.mean()) - 5.0) < 0.5
    card = (tmp_path / "fitted" / CARD_FILE).read_text()
    assert "OATProcessor.fit(action_data, vocab_size=256, preset='tiny', steps=80, seed=0)" in card
    assert f"{measures[8]:.4g}" in card


def test_it_goes_to_the_hub_and_comes_back(packages: Path, tmp_path: Path) -> None:
    _tokenizers()["plain"].save_pretrained(tmp_path / "plain")
    np.save(tmp_path / "chunks.npy", smooth_chunks(5).numpy())
    with serve_hub() as hub:
        environment = {"HF_ENDPOINT": hub.url, "HF_TOKEN": "hf_none", "HF_HOME": str(tmp_path / "hf")}
        run_alone(packages, _PUSH, tmp_path / "plain", tmp_path / "chunks.npy", HF_HUB_DISABLE_XET="1", **environment)
        files = hub.repositories["me/oat"]
    assert sorted(files) == FILES
    assert all(files[name] == (tmp_path / "plain" / name).read_bytes() for name in FILES)  # our card, not another


def test_it_is_called_as_fast_is() -> None:
    """As openpi and LeRobot call FAST."""
    tokenizer, chunks = OATProcessor(_tokenizers()["plain"]), smooth_chunks(4).numpy()
    assert tokenizer.vocab_size == 1000
    tokens = tokenizer(chunks)
    assert [len(row) for row in tokens] == [8] * 4
    assert tokenizer(chunks[0]) == tokens[:1]
    assert tokenizer(chunks[1][None])[0] == tokens[1]
    assert tokenizer(torch.from_numpy(chunks)) == tokens
    assert torch.tensor(tokenizer(torch.from_numpy(chunks[:1])), dtype=torch.long).shape == (1, 8)
    decoded = tokenizer.decode([tokens[2]], time_horizon=HORIZON, action_dim=DIM)[0]
    assert isinstance(decoded, np.ndarray)
    assert decoded.shape == (HORIZON, DIM)
    np.testing.assert_allclose(tokenizer.decode(tokens)[2], decoded, atol=1e-5)
    assert np.array_equal(tokenizer.decode(np.array(tokens)), tokenizer.decode(torch.tensor(tokens)))
    assert tokenizer.decode([]).shape == (0, HORIZON, DIM)
    assert tokenizer(chunks, max_error=100.0) == [row[:1] for row in tokens]


def test_the_card_s_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    fitted("oat").save_pretrained(tmp_path / "oat")  # type: ignore[operator]
    run_example((tmp_path / "oat" / CARD_FILE).read_text(), tmp_path / "oat", {"actions": smooth_chunks(3)})


def test_mistakes_have_names(tmp_path: Path) -> None:
    tokenizer, chunks = OATProcessor(_tokenizers()["plain"]), smooth_chunks(4)
    with pytest.raises(InvalidOption, match=r"chunks of 16 × 3 .*, 16 × 7 were asked for"):
        tokenizer.decode([[1]], action_dim=7)
    with pytest.raises(InvalidOption, match=r"chunks of 16 × 3 .*, 17 × 3 were asked for.* at most the tokenizer's"):
        tokenizer.decode([[1]], time_horizon=17)
    with pytest.raises(InvalidTokens, match=r"decode\(\[ids\]\)"):
        tokenizer.decode(np.array([1, 2, 3]))
    with pytest.raises(InvalidTokens, match="must be whole numbers"):
        tokenizer.decode(np.array([[1.5]]))
    with pytest.raises(InvalidOption, match="hold, zeros, raise, got 'none'"):
        OATProcessor(tokenizer.oat, "none")
    with pytest.raises(InvalidOption, match="actions, normalized, got 'raw'"):
        tokenizer.save_pretrained(tmp_path / "raw", inputs="raw")
    with pytest.raises(InvalidActions, match=r"must be \(batch, 16, 3\)"):
        tokenizer(chunks[:, :8])
    with pytest.raises(InvalidActions, match="one shape"):
        tokenizer.fit([chunks[0], chunks[1, :8]])
    with pytest.raises(InvalidActions, match="16 × 3, not 32 × None"):
        tokenizer.fit(chunks, time_horizon=32)
    with pytest.raises(InvalidActions, match=r"actions\[0, 0, 0\] is nan"):
        tokenizer.fit(chunks.clone().fill_(torch.nan))
    with pytest.raises(InvalidActions, match="at least 2 chunks"):
        tokenizer.fit(chunks[:1])
    with pytest.raises(InvalidOption, match="at least 5 tokens"):
        tokenizer.fit(chunks, vocab_size=4)
    with pytest.raises(UnknownName, match="Did you mean 'tiny'"):
        tokenizer.fit(chunks, preset="tinny")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(CheckpointError, match="not overwritten"):
        tokenizer.save_pretrained(tmp_path / "model")


def test_a_damaged_processor_is_noticed(tmp_path: Path) -> None:
    fitted("oat").save_pretrained(tmp_path / "oat")  # type: ignore[operator]
    weights = tmp_path / "oat" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0")
    with pytest.raises(CheckpointError, match="damaged"):
        OATProcessor.from_pretrained(tmp_path / "oat")
