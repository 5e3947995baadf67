"""Records survive a kill, and no episode is counted twice."""

import gzip
import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from oat.errors import CorruptDataset
from oat.evaluation.records import EpisodeKey, EpisodeRecord, RecordLog, find_records, read_records


def record(condition: int) -> EpisodeRecord:
    key = EpisodeKey("p", "oat×", 0, "w", "K=8", "pick\u2028up", "reporting", condition, 0)
    return EpisodeRecord(key, True, 1.0, 1.0, 20, 2, 16, 0, 0.5, 3.0, 4.0, "scripted", "metaworld 3")


def test_a_log_continues_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "r" / "records.jsonl"
    log = RecordLog(path)
    log.append(record(1))
    log.append(record(2))
    log.close()
    again = RecordLog(path)
    assert again.records == [record(1), record(2)]
    assert record(2).key in again.finished
    with pytest.raises(AssertionError):
        again.append(record(2))
    again.append(record(3))
    again.close()
    assert read_records(path) == [record(1), record(2), record(3)]


def test_records_are_found_in_a_folder_compressed_or_not(tmp_path: Path) -> None:
    log = RecordLog(tmp_path / "records.jsonl")
    log.append(record(1))
    log.close()
    plain = tmp_path / "records.jsonl"
    published = tmp_path / "published" / "records.jsonl.gz"
    published.parent.mkdir()
    published.write_bytes(gzip.compress(plain.read_bytes()))
    assert find_records(tmp_path) == plain
    assert find_records(plain) == plain
    assert read_records(find_records(published.parent)) == [record(1)]


@pytest.mark.parametrize("kept", [1, 41, 42, 43, -2, -1])
def test_a_line_that_a_kill_cut_short_never_happened(tmp_path: Path, kept: int) -> None:
    """Wherever it was cut, in the middle of a character as well, and before its newline."""
    path = tmp_path / "records.jsonl"
    log = RecordLog(path)
    log.append(record(1))
    size = path.stat().st_size
    log.append(record(2))
    log.close()
    data = path.read_bytes()
    path.write_bytes(data[:size] + data[size:][:kept])
    assert [r.key.condition for r in read_records(path)] == [1]
    again = RecordLog(path)
    assert again.records == [record(1)]
    again.append(record(3))
    again.close()
    assert read_records(path) == [record(1), record(3)]


def test_damage_in_the_middle_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    log = RecordLog(path)
    for condition in (1, 2, 3):
        log.append(record(condition))
    log.close()
    lines = path.read_bytes().splitlines(keepends=True)
    for damaged in (lines[1][:30] + b"\n", b"[]\n", b"\n", b'{"key": {}}\n'):
        path.write_bytes(b"".join([lines[0], damaged, lines[2]]))
        with pytest.raises(CorruptDataset, match="line 2: not a record"):
            RecordLog(path)


def test_an_episode_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    """As when somebody puts two files together; it would be counted twice."""
    path = tmp_path / "records.jsonl"
    log = RecordLog(path)
    for condition in (1, 2):
        log.append(record(condition))
    log.close()
    path.write_bytes(2 * path.read_bytes())
    for read in (RecordLog, read_records):
        with pytest.raises(CorruptDataset, match="line 3: the same episode as line 1"):
            read(path)


def test_file_names_are_readable_and_unique() -> None:
    key = record(1).key
    changes: list[dict[str, Any]] = [
        *({name: "other"} for name in ("protocol", "method", "checkpoint", "decoding", "task")),
        *({name: 7} for name in ("training_seed", "condition", "repeat")),
        {"split": "selection"},
    ]
    assert len(changes) == len(fields(key))
    others = [replace(key, **change) for change in changes]
    names = {each.file_name for each in (key, *others)}
    assert len(names) == 1 + len(others)
    assert key.file_name.startswith("pick_up-oat_-K=8-1-0-")
    assert "/" not in replace(key, task="../up").file_name
    assert len(replace(key, task="long " * 100).file_name.encode()) < 255


def test_gzipped_records_read_as_plain_ones(tmp_path: Path) -> None:
    log = RecordLog(tmp_path / "records.jsonl")
    for condition in (1, 2):
        log.append(record(condition))
    log.close()
    packed, short = tmp_path / "records.jsonl.gz", tmp_path / "short.jsonl.gz"
    packed.write_bytes(gzip.compress(log.path.read_bytes()))
    assert read_records(packed) == [record(1), record(2)]
    short.write_bytes(packed.read_bytes()[:-20])
    with pytest.raises(CorruptDataset, match=r"short\.jsonl\.gz is damaged"):
        read_records(short)
    short.write_bytes(b"{}\n")
    with pytest.raises(CorruptDataset, match="damaged"):
        read_records(short)


def test_keys_on_disk_stay_as_they_were_published(tmp_path: Path) -> None:
    """A name in the code may change; files of earlier versions are still read, and look the same."""
    log = RecordLog(tmp_path / "records.jsonl")
    log.append(record(1))
    log.close()
    stored = json.loads((tmp_path / "records.jsonl").read_text())
    assert stored["data_source"] == "scripted"
    assert "demonstrator" not in stored
    assert list(stored)[:2] == ["key", "success"]
    assert list(stored)[11:13] == ["data_source", "versions"]
