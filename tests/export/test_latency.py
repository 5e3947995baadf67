"""`oat bench latency` prints a table of percentiles for every engine that was asked for."""

import pytest

from oat.errors import InvalidOption
from oat.export.config import LatencyConfig
from oat.export.latency import measure_latency, time_calls
from tests.export.exported import exported


def test_engines_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    folder = exported("oat")[1]
    measure_latency(LatencyConfig(folder, num_tokens=(1, 8), batch=(1, 2), num_actions=4, repeats=20))
    measure_latency(LatencyConfig(folder.with_name("policy"), num_tokens=(2,), engines=("eager",), repeats=5))
    words = capsys.readouterr().out.split()
    assert words.count("onnx") == words.count("eager") == 1
    numbers = [float(word) for word in words if word.replace(".", "").isdigit() and "." in word]
    assert len(numbers) == 3 * (4 + 1)
    assert all(number > 0 for number in numbers)
    p50, p95, p99 = numbers[:3]
    assert p50 <= p95 <= p99


def test_calls_take_turns() -> None:
    order: list[str] = []
    times = time_calls({"eager": lambda: order.append("e"), "onnx": lambda: order.append("o")}, repeats=20)
    assert "".join(order) == "eo" + ("e" * 10 + "o" * 10) * 2
    assert {name: len(each) for name, each in times.items()} == {"eager": 20, "onnx": 20}


def test_nothing_to_time_is_told() -> None:
    with pytest.raises(InvalidOption, match="at least 1"):
        LatencyConfig(exported("oat")[1], repeats=0)
