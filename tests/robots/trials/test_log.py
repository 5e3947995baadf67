"""A log survives kills, belongs to one plan, and never tells a method by accident."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from oat.errors import CorruptDataset, InvalidOption, WriteFailed
from oat.robots.trials.log import Revealed, TrialLog
from tests.robots.trials.stage import METHODS, fill, make_plan, new_log, record


def test_a_sheet_is_continued(tmp_path: Path) -> None:
    log = new_log(tmp_path / "deep")
    assert not log.path.exists()  # nothing has happened yet
    first, second = make_plan().order()[:2]
    log.append(record(first, "success", "wie schön"))
    log.append(record(second, "void", "bumped"))
    again = new_log(tmp_path / "deep")
    assert again.records == [record(first, "success", "wie schön"), record(second, "void", "bumped")]
    assert list(again.judged) == [first]
    assert again.remaining[0] == second
    assert len(again.remaining) == 17
    again.append(record(second, "failure"))
    assert len(TrialLog.read(again.path).judged) == 2
    assert TrialLog.read(again.path).plan == make_plan()


def test_a_line_that_a_kill_cut_short_never_happened(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for trial in make_plan().order()[:2]:
        log.append(record(trial))
    whole = log.path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for size in (len(whole) - 1, ends[1] + 5, ends[1]):
        log.path.write_bytes(whole[:size])
        again = new_log(tmp_path)
        assert len(again.judged) == 1
        again.append(record(make_plan().order()[1]))
        assert log.path.read_bytes() == whole
    for size in (0, 10):
        log.path.write_bytes(whole[:size])
        again = new_log(tmp_path)
        for trial in make_plan().order()[:2]:
            again.append(record(trial))
        assert log.path.read_bytes() == whole


def test_trials_are_told_by_letter(tmp_path: Path) -> None:
    log = fill(new_log(tmp_path), dict.fromkeys(METHODS, "+-+-+-"))
    first, *lines = log.path.read_text().splitlines()
    assert "OAT_8" in first
    assert len(lines) == 18
    assert not any(method in line for method in METHODS for line in lines)
    assert log.remaining == []


def test_another_schedule_is_refused(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.append(record(make_plan().order()[0]))
    for change in ({"methods": {**METHODS, "OAT_8": 4}}, {"tasks": ("push",)}, {"seed": 8}, {"robot": "other:arm"}):
        with pytest.raises(InvalidOption, match=rf"another plan \({next(iter(change))}: .*, not .*another file"):
            new_log(tmp_path, **change)


def test_revealing_leaves_a_trace(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    first, second, third = make_plan().order()[:3]
    assert log.judged_when_revealed is None
    for entry in (record(first), record(second, "void"), record(second)):
        log.append(entry)
    log.append(Revealed("2026-01-01T00:00:00+00:00"))
    log.append(record(third))
    assert TrialLog.read(log.path).judged_when_revealed == 2


def test_damage_is_not_passed_over(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    trial = make_plan().order()[0]
    log.append(record(trial))
    log.append(record(make_plan().order()[1]))
    header, line, last = log.path.read_text().splitlines()
    other = json.dumps({**json.loads(line), "trial": {"task": "fly", "block": 0, "letter": "A"}})
    cases: tuple[tuple[list[str], str], ...] = (
        ([line], "does not begin with a plan"),
        ([], "does not begin with a plan"),
        ([header, line[:20], last], "line 2: not a line of a trial log"),
        ([header, line.replace("success", "perhaps")], "'perhaps' is not a verdict"),
        ([header, line, line], "A of block 1 of push is judged twice"),
        ([header, other], "A of block 1 of fly is not in the plan"),
    )
    for lines, message in cases:
        log.path.write_text("".join(f"{each}\n" for each in lines))
        with pytest.raises(CorruptDataset, match=message):
            TrialLog.read(log.path)
    with pytest.raises(InvalidOption, match="does not exist"):
        TrialLog.read(tmp_path / "nowhere")


def test_a_log_of_before_that_tells_no_decoding_is_read_and_continued(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    first, second = make_plan().order()[:2]
    log.append(replace(record(first), chunks=3, tokens=12, samples=8, decoding="K=all"))
    header, line = log.path.read_text().splitlines()
    values = json.loads(line)
    for name in ("chunks", "tokens", "samples", "decoding"):
        del values[name]
    log.path.write_text(f"{header}\n{json.dumps(values)}\n")
    old = new_log(tmp_path)
    new = replace(record(second), chunks=3, tokens=12, samples=8, decoding="K=all")
    old.append(new)
    assert TrialLog.read(log.path).records == [record(first), new]


def test_two_who_write_at_once_do_not_destroy_each_others(tmp_path: Path) -> None:
    one, other = new_log(tmp_path), new_log(tmp_path)
    one.append(record(make_plan().order()[0]))
    with pytest.raises(WriteFailed, match="another process"):
        other.append(record(make_plan().order()[0]))
    one.append(record(make_plan().order()[1]))
    assert len(TrialLog.read(one.path).judged) == 2


def test_a_sheet_that_cannot_be_written_says_so() -> None:
    with pytest.raises(WriteFailed, match="choose another place"):
        new_log(Path("/proc/none")).append(record(make_plan().order()[0]))
