"""Training records and measures survive JSON, and refuse what they cannot have written."""

import json

import pytest

from oat.errors import CheckpointError
from oat.io.training_record import Measures, TrainingRecord, stored_record

MEASURES = Measures(
    score=-2.5,
    nll_of_chunk=9.5,
    mse_of_prefix={1: 0.5, 2: 0.25, 8: 0.125},
    nll_of_token={1: 3.0, 2: 2.0},
    accuracy_of_token={1: 0.5},
    others={"curvature": 1.5},
)


def test_a_record_comes_back_from_json() -> None:
    record = TrainingRecord(data="demos", frames=12, validation=0.1, seed=3, step=400, measures=MEASURES)
    stored = json.loads(json.dumps(record.to_json()))
    assert stored["measures"]["mse_8"] == 0.125  # the names that published checkpoints have
    assert TrainingRecord.from_json(stored) == record
    assert stored_record({"trained_on": stored}) == stored_record({"fitted_to": stored}) == record


def test_what_was_not_noted_is_not_stored() -> None:
    assert TrainingRecord(seed=0).to_json() == {"seed": 0}
    assert stored_record({}) == TrainingRecord()


def test_newer_fields_are_passed_over() -> None:
    assert TrainingRecord.from_json({"seed": 1, "weather": "fine"}) == TrainingRecord(seed=1)


def test_the_error_of_a_prefix_and_of_the_whole() -> None:
    assert MEASURES.error(2) == 0.25
    assert MEASURES.error() == 0.125
    assert Measures(mse=0.3).error() == Measures(mse=0.3).error(8) == 0.3
    assert Measures().error() is None


@pytest.mark.parametrize(
    "wrong", [[], "text", {"seed": "three"}, {"seed": True}, {"validation": []}, {"recipe": 3}, {"measures": [1]}]
)
def test_values_of_another_type_are_refused(wrong: object) -> None:
    with pytest.raises(CheckpointError, match="training record"):
        TrainingRecord.from_json(wrong)


def test_a_measure_must_be_a_number() -> None:
    with pytest.raises(CheckpointError, match="'mse_2' must be a number, got 'small'"):
        TrainingRecord.from_json({"measures": {"mse_2": "small"}})
