"""The page about LeRobot tells options that exist."""

import dataclasses
import re
from pathlib import Path

from lerobot_policy_oat.configuration_oat import DECODINGS, OATConfig

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/lerobot.md").read_text()
FIELDS = {field.name: field for field in dataclasses.fields(OATConfig)}


def test_commands_have_options_of_the_policy() -> None:
    named = set(re.findall(r"--policy\.(\w+)=", PAGE))
    assert named <= FIELDS.keys() | {"type", "path"}
    assert {"type", "path", "tokenizer", "num_tokens"} <= named


def test_the_table_has_the_options_and_their_defaults() -> None:
    table = re.search(r"\| `--policy.*?\n\n", PAGE, re.DOTALL)
    assert table is not None
    assert set(re.findall(r"`(\w+)`", table[0])) <= FIELDS.keys()
    defaults = [FIELDS[name].default for name in ("chunk_size", "n_action_steps", "n_obs_steps")]
    assert ", ".join(map(str, defaults)) in table[0]
    assert FIELDS["preset"].default in table[0]
    assert all(decoding in table[0] for decoding in DECODINGS)
