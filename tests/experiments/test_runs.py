"""One run of a study: when it counts as done, and what is noted of it."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from oat.errors import InvalidOption
from oat.experiments.study.runs import Run, commit, last_step, marker, processor, read_result
from oat.sims.config import CollectConfig
from oat.training.config import FitConfig


def _made(folder: Path, name: str, needs: tuple[str, ...] = ()) -> Run:
    """A run whose result is there already, so that it is done at once."""
    out = folder / name
    out.mkdir(exist_ok=True)
    run = Run(folder, name, CollectConfig("metaworld", ("box-close",), out, episodes=1), needs)
    run.perform()
    return run


def test_a_run_notes_the_code_that_did_it(tmp_path: Path) -> None:
    run = _made(tmp_path, "first")
    assert run.done
    assert read_result(tmp_path, "first")["commit"] == commit()
    assert read_result(tmp_path, "other") == {}


def test_a_command_tells_nothing_of_the_machine(tmp_path: Path) -> None:
    folder, data = tmp_path / "study", tmp_path / "private" / "set.zarr"
    config = FitConfig(data, folder / "tokenizers" / "oat", seed=1)
    assert Run(folder, "tokenizers/oat", config).command == "oat fit --data set.zarr --out tokenizers/oat --seed 1"
    own = replace(config, data=folder / "demos")
    assert Run(folder, "tokenizers/oat", own).command == "oat fit --data demos --out tokenizers/oat --seed 1"


@pytest.mark.parametrize("replaced", [True, False])
def test_what_was_made_from_a_replaced_run_is_refused(tmp_path: Path, replaced: bool) -> None:
    _made(tmp_path, "first")
    second = _made(tmp_path, "second", ("first",))
    assert second.done
    file = marker(tmp_path, "first")
    if replaced:
        file.write_text(json.dumps({**read_result(tmp_path, "first"), "seconds": 99.0}))
    else:
        file.unlink()
    with pytest.raises(InvalidOption, match=r"second made from first, since replaced or removed; remove .*second"):
        _ = second.done


def test_results_from_before_needs_were_noted_stand(tmp_path: Path) -> None:
    _made(tmp_path, "first")
    second = replace(_made(tmp_path, "second"), needs=("first",))
    assert second.done


def test_what_is_made_again_keeps_its_mark(tmp_path: Path) -> None:
    """So does what was made from it, also while it is being made again, or after that was interrupted."""
    first = _made(tmp_path, "first")
    second = _made(tmp_path, "second", ("first",))
    before = read_result(tmp_path, "first")
    first.config.out.rmdir()
    assert first.lost
    first.make_again()
    assert not marker(tmp_path, "first").exists()
    assert second.done
    first.config.out.mkdir()
    first.perform()
    assert first.done
    assert read_result(tmp_path, "first") == before
    assert second.done


def test_what_is_made_again_differently_is_refused(tmp_path: Path) -> None:
    first = _made(tmp_path, "first")
    file = marker(tmp_path, "first")
    file.write_text(json.dumps({**read_result(tmp_path, "first"), "weights": "0123456789ab", "processor": "P 4"}))
    first.make_again()
    with pytest.raises(InvalidOption, match=r"first made again has other weights \(None\) than before") as refused:
        first.perform()
    assert f"(this is {processor()}, that was P 4)" in str(refused.value)
    assert not first.done


def test_a_training_whose_weights_were_not_noted_is_not_made_again(tmp_path: Path) -> None:
    """Before hours of training: it might be another model, and its episodes would stand beside the former one's."""
    first = _made(tmp_path, "first")
    noted = read_result(tmp_path, "first")
    marker(tmp_path, "first").write_text(json.dumps({**noted, "steps": 100}))
    with pytest.raises(InvalidOption, match=r"^first would be trained again, and what weights it had was not noted"):
        first.make_again()
    assert first.done
    marker(tmp_path, "first").write_text(json.dumps({**noted, "steps": 100, "weights": "0123456789ab"}))
    first.make_again()


def test_without_git_the_commit_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit() == "unknown"


@pytest.mark.parametrize("lines", [0, 1, 500])
def test_the_last_step_of_a_log(tmp_path: Path, lines: int) -> None:
    """Also of a log of one line, and while the next one is being written."""
    log = "".join(json.dumps({"step": 20 * number, "loss": 0.5}) + "\n" for number in range(1, lines + 1))
    (tmp_path / "metrics.jsonl").write_text(log + '{"step": 99')
    assert last_step(tmp_path) == (20 * lines or None)
