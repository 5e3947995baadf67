"""How many tokens the chunks of an episode had one after the other, where a rule decided that for each of them."""

import math
from collections.abc import Sequence

import numpy as np

from oat.evaluation.protocol import known_protocol
from oat.evaluation.records import EpisodeRecord
from oat.policies.stopping import DEPTH_RULES, Fixed, RandomDepth

_DECIDING = [name for name, rule in DEPTH_RULES.items() if rule not in (Fixed, RandomDepth)]


def chose_depth(record: EpisodeRecord) -> bool:
    """Return whether a rule decided how many tokens each chunk needs; depths that were drawn at random are no choice.

    Neither is a fixed number, nor how many tokens a tokenizer of variable length needs.
    """
    named = {word.partition("=")[0] for word in record.key.decoding.split()}
    return bool(record.chunk_tokens) and not named.isdisjoint(_DECIDING)


def chunk_starts(record: EpisodeRecord) -> list[int]:
    """Return the step from which each chunk of an episode was executed.

    Where the protocol is not a known one, all chunks but the last are taken for equally long.
    """
    protocol = known_protocol(record.key.protocol)
    chunks = len(record.chunk_tokens)
    if protocol is None:
        return [number * math.ceil(record.steps / chunks) for number in range(chunks)]
    # The first chunk of an episode is waited for.
    return [number * protocol.execute + (protocol.delay if number else 0) for number in range(chunks)]


def mean_course(courses: Sequence[Sequence[int]], parts: int) -> list[float]:
    """Return the mean number of tokens at equal parts of episodes, which differ in length."""
    places = np.linspace(0, 1, parts)
    each = [[course[min(int(place * len(course)), len(course) - 1)] for place in places] for course in courses]
    return np.mean(each, axis=0).tolist()
