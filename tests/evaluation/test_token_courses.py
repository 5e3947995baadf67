"""Tokens along an episode: whose they are, when their chunks were executed, and what they are on average."""

from dataclasses import replace

import pytest

from oat.evaluation.protocol import find_protocol
from oat.evaluation.records import EpisodeRecord
from oat.evaluation.token_courses import chose_depth, chunk_starts, mean_course
from tests.evaluation.test_records import record


def _episode(decoding: str, protocol: str = "elsewhere", tokens: tuple[int, ...] = (1, 4, 2)) -> EpisodeRecord:
    made = record(0)
    key = replace(made.key, decoding=decoding, protocol=protocol)
    return replace(made, key=key, chunk_tokens=tokens, chunks=len(tokens), steps=40)


@pytest.mark.parametrize(
    ("decoding", "expected"),
    [
        ("K=8 greedy residual=0.03", True),
        ("K=8 value=0.01 remainder", True),
        ("K=8 greedy random-depth=50/50", False),
        ("K=8 greedy fixed=2", False),
        ("K=8 greedy", False),
    ],
)
def test_only_a_rule_that_decides_chooses(decoding: str, expected: bool) -> None:
    assert chose_depth(_episode(decoding)) == expected
    assert not chose_depth(_episode(decoding, tokens=()))


def test_chunks_begin_where_the_protocol_says() -> None:
    assert chunk_starts(_episode("K=8", find_protocol("metaworld").hash)) == [0, 16, 32]
    late = find_protocol("metaworld", execute=16, delay=4)
    assert chunk_starts(_episode("K=8", late.hash)) == [0, 20, 36]
    assert chunk_starts(_episode("K=8")) == [0, 14, 28]


def test_episodes_of_different_lengths_are_averaged_by_their_parts() -> None:
    assert mean_course([(1, 1, 3, 3), (5, 7)], 4) == [3, 3, 5, 5]
