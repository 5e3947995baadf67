"""The examples run as they are shown."""

import re
import subprocess
import sys
from pathlib import Path

from tests.policies.small import tokenizer_of

EXAMPLES = Path(__file__).parents[1] / "examples"


def _run(*arguments: str | Path) -> str:
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _ends(output: str) -> dict[str, list[float]]:
    found = re.findall(r"(reach \w+): tokens \[.*\] decode to .* end at \((.*)\)", output)
    return {task: [float(number) for number in numbers.split(", ")] for task, numbers in found}


def test_a_language_model_learns_to_reach() -> None:
    output = _run(EXAMPLES / "vla.py")
    losses = re.search(r"loss ([\d.]+) → ([\d.]+)", output)
    assert losses is not None
    assert float(losses[2]) < 0.2 * float(losses[1])
    ends = _ends(output)
    assert all(abs(value + 1) < 0.4 for value in ends["reach left"])
    assert all(abs(value - 1) < 0.4 for value in ends["reach right"])


def test_it_takes_any_processor_and_number_of_tokens(tmp_path: Path) -> None:
    tokenizer_of("oat").save_pretrained(tmp_path / "oat")  # type: ignore[operator]
    output = _run(EXAMPLES / "vla.py", "--tokenizer", tmp_path / "oat", "--steps", "3", "--num-tokens", "2")
    assert len(_ends(output)) == 2
    assert all(len(tokens.split(",")) == 2 for tokens in re.findall(r"tokens \[(.*)\]", output))
