"""A data set's chunks as tokens on disk: tokens.json, data/part-*.parquet, and the tokenizer that made them.

Every part holds the same number of consecutive chunks and is written whole or not at all, so that an interrupted
encoding goes on with the parts that are missing.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from oat.encoding.config import check_part_size
from oat.encoding.part_files import Begins, part_file, read_identity, read_tokens
from oat.errors import CheckpointError, CorruptDataset, DatasetExists, InvalidOption
from oat.io.atomic import staged_file
from oat.io.config_json import config_from_json, config_to_json
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.tokens import Tokens
from oat.training.token_cache import tokenizer_fingerprint

DESCRIPTION_FILE = "tokens.json"
_FORMAT = {"format": "oat tokens", "version": 1}


@dataclass(frozen=True)
class TokenSetInfo:
    """Describe encoded chunks: of what data, by which tokenizer, and how they are divided into files."""

    data: str
    """Path of the demonstrations when they were encoded."""
    data_fingerprint: str
    tokenizer: str
    """Kind of the tokenizer."""
    tokenizer_fingerprint: str
    vocab_size: int
    action_horizon: int
    action_dim: int
    chunks: int
    part_size: int
    prefixes: tuple[int, ...]
    """Numbers of tokens that the column `error` is for, in its order; none where errors were not measured."""
    tasks: tuple[str, ...]
    """Texts that `task_index` refers to."""

    def __post_init__(self) -> None:
        check_part_size(self.part_size)
        if self.chunks < 0:
            raise InvalidOption(f"there cannot be {self.chunks} chunks")

    @property
    def num_parts(self) -> int:
        """Return how many files there are when all is encoded."""
        return -(-self.chunks // self.part_size)

    def rows(self, part: int) -> range:
        """Return the numbers of the chunks in a part."""
        return range(part * self.part_size, min((part + 1) * self.part_size, self.chunks))

    @property
    def identity(self) -> dict[str, Any]:
        """Return what every token file says of itself."""
        return {"tokenizer": self.tokenizer_fingerprint, "data": self.data_fingerprint, "prefixes": list(self.prefixes)}


def missing_parts(root: Path, info: TokenSetInfo, identity: Mapping[str, Any]) -> list[int]:
    """Return the parts that are not there yet; raise `DatasetExists` for one that was made of something else."""
    missing = []
    for part in range(info.num_parts):
        file = part_file(root, part)
        if not file.exists():
            missing.append(part)
        elif read_identity(file) != (dict(identity), len(info.rows(part))):
            raise DatasetExists(f"{file} was made of other data, or in another way; another --out keeps both")
    return missing


@dataclass(frozen=True)
class TokenSet:
    """Read a set of tokens part by part."""

    root: Path
    info: TokenSetInfo

    @classmethod
    def open(cls, root: Path) -> "TokenSet":
        """Return the set in a directory, or raise `CorruptDataset`."""
        file = root / DESCRIPTION_FILE
        try:
            described = json.loads(file.read_text("utf-8"))
            if {name: described.pop(name, None) for name in _FORMAT} != _FORMAT:
                raise ValueError(f"it is not of {_FORMAT['format']}, version {_FORMAT['version']}")
            return cls(root, config_from_json(TokenSetInfo, described))
        except (OSError, ValueError, AttributeError, RecursionError, CheckpointError) as error:
            raise CorruptDataset(f"{root}: not what oat encode wrote ({file.name}: {error})") from error

    @classmethod
    def begin(cls, root: Path, info: TokenSetInfo, tokenizer: BaseTokenizer) -> "TokenSet":
        """Return a new set, or the one that an earlier encoding of the same began; refuse any other."""
        if (root / DESCRIPTION_FILE).exists():
            found = cls.open(root)
            different = [name for name, value in asdict(info).items() if asdict(found.info)[name] != value]
            if different:
                raise DatasetExists(f"{root} holds tokens with another {different[0]}; another --out keeps both")
            return found
        # Whatever else is there, a directory of somebody's is not filled with files.
        if root.exists() and any(each.name != "lock" for each in root.iterdir()):
            raise DatasetExists(f"{root} exists and holds no tokens; another --out leaves it as it is")
        tokenizer.save(root / "tokenizer")
        with staged_file(root / DESCRIPTION_FILE) as staging:
            staging.write_text(json.dumps({**_FORMAT, **config_to_json(info)}, indent=2, ensure_ascii=False), "utf-8")
        return cls(root, info)

    def load_tokenizer(self) -> BaseTokenizer:
        """Return the tokenizer that made the tokens; raise `CorruptDataset` if another one lies there."""
        tokenizer = load_tokenizer(self.root / "tokenizer")
        info = self.info
        said = (info.tokenizer_fingerprint, info.vocab_size, info.action_horizon, info.action_dim)
        shape = (tokenizer.vocab_size, tokenizer.action_horizon, tokenizer.action_dim)
        if said != (tokenizer_fingerprint(tokenizer), *shape):
            raise CorruptDataset(f"{self.root}: the tokenizer in it is not the one that {DESCRIPTION_FILE} describes")
        return tokenizer

    def check_complete(self) -> None:
        """Raise `CorruptDataset` where an encoding was not finished."""
        there = sum(1 for _ in (self.root / "data").glob("part-*.parquet"))
        # Counted first: a description may promise more parts than could ever be looked for.
        lacking = self.info.num_parts - there
        missing = lacking if lacking > 0 else len(missing_parts(self.root, self.info, self.info.identity))
        if missing:
            raise CorruptDataset(
                f"{self.root}: {missing} of {self.info.num_parts} parts are missing; "
                "the same oat encode command makes them"
            )

    def read(self, part: int, longest: int, at_once: int = 4096) -> Iterator[tuple[Begins, Tokens]]:
        """Yield where the chunks of a part begin, and their at most `longest` tokens, some chunks at a time."""
        return read_tokens(part_file(self.root, part), len(self.info.rows(part)), longest, at_once)
