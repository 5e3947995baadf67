"""Records survive a kill, and no episode is counted twice."""

from pathlib import Path

import pytest

from oat.errors import CorruptDataset
from oat.evaluation.records import EpisodeKey, EpisodeRecord, RecordLog, read_records


def record(condition: int) -> EpisodeRecord:
    key = EpisodeKey("p", "oat", 0, "w", "K=8", "reach", condition, 0)
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
    assert [r.key.condition for r in read_records(path)] == [1, 2, 3]


@pytest.mark.parametrize("kept", [1, 40, -2, -1])
def test_a_line_that_a_kill_cut_short_never_happened(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "records.jsonl"
    log = RecordLog(path)
    log.append(record(1))
    size = path.stat().st_size
    log.append(record(2))
    log.close()
    data = path.read_bytes()
    path.write_bytes(data[:size] + data[size:][:kept])
    again = RecordLog(path)
    whole = kept == -1  # only its newline is missing: the record is there
    assert [r.key.condition for r in again.records] == ([1, 2] if whole else [1])
    again.append(record(3))
    again.close()
    assert [r.key.condition for r in read_records(path)] == ([1, 2, 3] if whole else [1, 3])


def test_damage_in_the_middle_is_not_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "records.jsonl"
    log = RecordLog(path)
    for condition in (1, 2, 3):
        log.append(record(condition))
    log.close()
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:30], lines[2]]) + "\n")
    with pytest.raises(CorruptDataset, match="line 2"):
        RecordLog(path)
