"""The files that hold parts: written in pieces, and read in pieces, because a stranger may have made them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from jaxtyping import Int64
from torch import Tensor

from oat.encoding.config import LARGEST_PART
from oat.encoding.schemas import IDENTITY, KEYS, token_schema
from oat.errors import CorruptDataset
from oat.io.atomic import staged_file
from oat.tokenizers.tokens import Tokens

Begins = dict[str, Int64[np.ndarray, " chunks"]]
"""Where chunks begin, by the data set's own numbers."""
_GROUP_BYTES = 32 * 2**20  # what is collected before it is compressed and written
_READ = (*KEYS, "tokens", "length")


def part_file(root: Path, part: int) -> Path:
    """Return where a part of a set of tokens or actions is."""
    return root / "data" / f"part-{part:05d}.parquet"


def write_part(file: Path, schema: pa.Schema, blocks: Iterable[Mapping[str, pa.Array]]) -> None:
    """Write the columns of a part as they come, whole or not at all."""
    with (
        staged_file(file) as staging,
        pq.ParquetWriter(staging, schema, compression="zstd", write_page_checksum=True) as writer,
    ):
        for group in _groups(pa.table(dict(columns), schema=schema) for columns in blocks):
            writer.write_table(group, row_group_size=LARGEST_PART)


def _groups(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables together, so that large files have few groups of rows and small ones a single one."""
    waiting = list[pa.Table]()
    for table in tables:
        waiting.append(table)
        if sum(each.nbytes for each in waiting) > _GROUP_BYTES:
            yield pa.concat_tables(waiting)
            waiting.clear()
    if waiting:
        yield pa.concat_tables(waiting)


@contextmanager
def explain_unreadable(file: Path) -> Iterator[None]:
    """Raise `CorruptDataset` for a file that is no part, or not readable."""
    try:
        yield
    except (pa.ArrowException, OSError, LookupError, ValueError, TypeError, RecursionError, MemoryError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise CorruptDataset(f"{file}: not a readable part ({reason}); remove it to have it made again") from error


def read_identity(file: Path) -> tuple[Any, int]:
    """Return what a part says that it was made of, and how many chunks it holds."""
    with explain_unreadable(file):
        found = pq.read_metadata(file)
        return json.loads((found.metadata or {}).get(IDENTITY, b"null")), found.num_rows


def read_tokens(file: Path, rows: int, longest: int, at_once: int) -> Iterator[tuple[Begins, Tokens]]:
    """Yield where the chunks of a part begin, and their tokens, some at a time.

    Raise `CorruptDataset` unless the file has so many `rows`, of at most `longest` tokens.
    """
    with explain_unreadable(file), pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        _check_sizes(parquet, rows, longest)
        for batch in parquet.iter_batches(at_once, columns=list(_READ)):
            yield _tokens_of(batch, longest)


def _check_sizes(parquet: pq.ParquetFile, rows: int, longest: int) -> None:
    """Raise `ValueError` for a file that declares other columns, or more numbers, than its part can have."""
    expected = token_schema(0, {})
    for name in _READ:
        found = parquet.schema_arrow.field(name).type
        if found != expected.field(name).type:
            raise ValueError(f"{name} is {found!s:.60}, not {expected.field(name).type}")
    metadata = parquet.metadata
    if metadata.num_rows != rows:
        raise ValueError(f"it has {metadata.num_rows} rows, not {rows}")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        columns = (group.column(place) for place in range(group.num_columns))
        values = max(column.num_values for column in columns if column.path_in_schema.split(".")[0] in _READ)
        if values > longest * rows:
            raise ValueError(f"it declares {values} numbers in {rows} rows")


def _tokens_of(batch: pa.RecordBatch, longest: int) -> tuple[Begins, Tokens]:
    """Return a batch's columns, or raise `ValueError` where they contradict each other."""
    columns = {name: batch.column(batch.schema.get_field_index(name)) for name in _READ}
    if any(column.null_count for column in columns.values()):
        raise ValueError("numbers are missing")
    lengths = torch.from_numpy(columns["length"].to_numpy().astype(np.int64))
    values = torch.from_numpy(columns["tokens"].flatten().to_numpy().astype(np.int64))
    held = torch.from_numpy(np.diff(columns["tokens"].offsets.to_numpy()).astype(np.int64))
    if not torch.equal(lengths, held) or bool((lengths > longest).any()):
        raise ValueError(f"its lengths are not those of its tokens, or above {longest}")
    return {name: columns[name].to_numpy() for name in KEYS}, Tokens(_padded(values, lengths), lengths)


def _padded(values: Int64[Tensor, " tokens"], lengths: Int64[Tensor, " chunks"]) -> Int64[Tensor, "chunks width"]:
    width = int(lengths.max()) if len(lengths) else 0
    ids = torch.zeros(len(lengths), width, dtype=torch.int64)
    ids[torch.arange(width) < lengths[:, None]] = values
    return ids
