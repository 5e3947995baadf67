"""A sheet survives kills, belongs to one schedule, and never tells a method by accident."""

import json
from pathlib import Path

import pytest

from oat.errors import CorruptDataset, InvalidOption, WriteFailed
from oat.robots.trials.log import Revealed, TrialSheet
from tests.robots.trials.stage import METHODS, fill, new_sheet, record, schedule


def test_a_sheet_is_continued(tmp_path: Path) -> None:
    sheet = new_sheet(tmp_path / "deep")
    assert not sheet.path.exists()  # nothing has happened yet
    first, second = schedule().order()[:2]
    sheet.append(record(first, "success", "wie schön"))
    sheet.append(record(second, "void", "bumped"))
    again = new_sheet(tmp_path / "deep")
    assert again.records == [record(first, "success", "wie schön"), record(second, "void", "bumped")]
    assert list(again.judged) == [first]
    assert again.remaining[0] == second
    assert len(again.remaining) == 17
    again.append(record(second, "failure"))
    assert len(TrialSheet.read(again.path).judged) == 2
    assert TrialSheet.read(again.path).schedule == schedule()


def test_a_line_that_a_kill_cut_short_never_happened(tmp_path: Path) -> None:
    sheet = new_sheet(tmp_path)
    for trial in schedule().order()[:2]:
        sheet.append(record(trial))
    whole = sheet.path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for size in (len(whole) - 1, ends[1] + 5, ends[1]):
        sheet.path.write_bytes(whole[:size])
        again = new_sheet(tmp_path)
        assert len(again.judged) == 1
        again.append(record(schedule().order()[1]))
        assert sheet.path.read_bytes() == whole
    for size in (0, 10):
        sheet.path.write_bytes(whole[:size])
        again = new_sheet(tmp_path)
        for trial in schedule().order()[:2]:
            again.append(record(trial))
        assert sheet.path.read_bytes() == whole


def test_trials_are_told_by_letter(tmp_path: Path) -> None:
    sheet = fill(new_sheet(tmp_path), dict.fromkeys(METHODS, "+-+-+-"))
    first, *lines = sheet.path.read_text().splitlines()
    assert "OAT_8" in first
    assert len(lines) == 18
    assert not any(method in line for method in METHODS for line in lines)
    assert sheet.remaining == []


def test_another_schedule_is_refused(tmp_path: Path) -> None:
    sheet = new_sheet(tmp_path)
    sheet.append(record(schedule().order()[0]))
    for change in ({"methods": {**METHODS, "OAT_8": 4}}, {"tasks": ("push",)}, {"seed": 8}, {"robot": "other:arm"}):
        with pytest.raises(InvalidOption, match=rf"another schedule \({next(iter(change))}: .*, not .*another file"):
            new_sheet(tmp_path, **change)


def test_revealing_leaves_a_trace(tmp_path: Path) -> None:
    sheet = new_sheet(tmp_path)
    first, second, third = schedule().order()[:3]
    assert sheet.judged_when_revealed is None
    for entry in (record(first), record(second, "void"), record(second)):
        sheet.append(entry)
    sheet.append(Revealed("2026-01-01T00:00:00+00:00"))
    sheet.append(record(third))
    assert TrialSheet.read(sheet.path).judged_when_revealed == 2


def test_damage_is_not_passed_over(tmp_path: Path) -> None:
    sheet = new_sheet(tmp_path)
    trial = schedule().order()[0]
    sheet.append(record(trial))
    sheet.append(record(schedule().order()[1]))
    header, line, last = sheet.path.read_text().splitlines()
    other = json.dumps({**json.loads(line), "trial": {"task": "fly", "block": 0, "letter": "A"}})
    cases: tuple[tuple[list[str], str], ...] = (
        ([line], "does not begin with a schedule"),
        ([], "does not begin with a schedule"),
        ([header, line[:20], last], "line 2: not a line of a trial sheet"),
        ([header, line.replace("success", "perhaps")], "'perhaps' is no verdict"),
        ([header, line, line], "A of block 1 of push is judged twice"),
        ([header, other], "A of block 1 of fly is not in the schedule"),
    )
    for lines, message in cases:
        sheet.path.write_text("".join(f"{each}\n" for each in lines))
        with pytest.raises(CorruptDataset, match=message):
            TrialSheet.read(sheet.path)
    with pytest.raises(InvalidOption, match="does not exist"):
        TrialSheet.read(tmp_path / "nowhere")


def test_two_who_write_at_once_do_not_destroy_each_others(tmp_path: Path) -> None:
    one, other = new_sheet(tmp_path), new_sheet(tmp_path)
    one.append(record(schedule().order()[0]))
    with pytest.raises(WriteFailed, match="another process"):
        other.append(record(schedule().order()[0]))
    one.append(record(schedule().order()[1]))
    assert len(TrialSheet.read(one.path).judged) == 2


def test_a_sheet_that_cannot_be_written_says_so() -> None:
    with pytest.raises(WriteFailed, match="choose another place"):
        new_sheet(Path("/proc/none")).append(record(schedule().order()[0]))
