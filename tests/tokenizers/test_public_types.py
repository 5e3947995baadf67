"""A user's type checker sees what the lazy public names are."""

import subprocess
import sys
from pathlib import Path

SCRIPT = """
from typing import assert_type
import numpy as np, oat, torch
from oat.tokenizers.tokens import Tokens

chunks = np.zeros((100, 16, 3), np.float32)
tokenizer = oat.OATTokenizer.fit(chunks, preset="tiny", steps=10)
tokens = tokenizer.encode(chunks[:4])
actions = tokenizer.decode(tokens[:, :2])
assert_type(tokens, Tokens)
assert_type(actions, torch.Tensor)
assert_type(oat.BinTokenizer.fit(chunks), oat.BinTokenizer)
reveal_type(tokenizer)
reveal_type(oat.load_tokenizer("tokenizer"))
"""


def test_mypy_sees_real_types(tmp_path: Path) -> None:
    (tmp_path / "user.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    # Of our own package only the types matter here: it has its own mypy run.
    command += ["--follow-imports", "silent", "--config-file", "", "user.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert ['Revealed type is "oat.tokenizers.oat.OATTokenizer"' in line for line in lines] == [True, False]
    assert 'Revealed type is "oat.tokenizers.base.BaseTokenizer"' in lines[1]


def test_the_package_says_that_it_has_types() -> None:
    import oat

    assert (Path(oat.__file__).parent / "py.typed").exists()
