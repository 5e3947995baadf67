"""Read the requests of clients: the observation of one robot, as the policy expects it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oat.errors import InvalidMessage, unknown_name
from oat.policies.context import ContextConfig
from oat.policies.decoding import Decoding, SampledDecoding
from oat.policies.predictor import BasePredictor
from oat.serving.messages import NOISE, NUM_TOKENS, PREVIOUS, PROMPT


@dataclass(frozen=True)
class Request:
    """Hold the last H_o frames of one robot, and its task."""

    frames: Mapping[str, np.ndarray]
    """For each key (H_o, …)."""
    task: str
    noise: tuple[int, int] | None
    """The episode's seed and the chunk's number, if the client wants to know its random numbers."""
    num_tokens: int | None = None
    """K, if the client wants fewer tokens than the server would generate."""
    previous: np.ndarray | None = None
    """(steps, dim): what the robot would do from now on if no new chunk came, in action units; None for nothing."""


def read_request(message: Mapping[str, Any], policy: BasePredictor, names: Mapping[str, str]) -> Request:
    """Return the request in a message; `names` maps what clients call some observations to the policy's names.

    The policy checks shapes and values itself; here a single frame is only distinguished from a history of frames.
    """
    # openpi's clients write observation/state where LeRobot and we write observation.state.
    given = {names.get(key, key.replace("/", ".")): value for key, value in message.items()}
    frames = {
        key: _history(key, given[key], len(size), policy.observed.obs_horizon)
        for key, size in {**policy.reference, **policy.observed.sizes()}.items()
        if key in given
    }
    task = _task(given, policy.observed)
    return Request(frames, task, _noise(given), _num_tokens(given), _previous(given, policy.space.action_dim))


def check_names(names: Mapping[str, str], policy: BasePredictor) -> None:
    """Raise an error for a name that clients' observations are renamed to although the policy does not know it."""
    known = {*policy.reference, *policy.observed.keys, PROMPT, NOISE, NUM_TOKENS, PREVIOUS}
    for name in names.values():
        if name not in known:
            raise unknown_name("observation to rename to", name, known)


def _history(key: str, value: Any, frame_axes: int, horizon: int) -> np.ndarray:
    """Return the frames as they are, or a single frame repeated H_o times: the server keeps no history."""
    if not isinstance(value, np.ndarray):
        raise InvalidMessage(f"{key} must be an array, got {type(value).__name__}")
    if value.ndim == frame_axes:
        return np.broadcast_to(value, (horizon, *value.shape))
    return value


def _task(given: Mapping[str, Any], context: ContextConfig) -> str:
    """Return the task that the prompt names; a policy with a single task needs no prompt."""
    task = given.get(PROMPT, context.tasks[0] if len(context.tasks) == 1 else None)
    if not isinstance(task, str):
        raise InvalidMessage(f"{PROMPT!r} must tell the task: {', '.join(context.tasks[:20])}")
    return task


def _noise(given: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the episode's seed and the chunk's number, if the client sent them."""
    noise = given.get(NOISE)
    if noise is None:
        return None
    if not (isinstance(noise, list) and len(noise) == 2 and all(type(number) is int for number in noise)):
        raise InvalidMessage(f"{NOISE!r} must be [seed of the episode, number of the chunk]")
    return noise[0], noise[1]


def _num_tokens(given: Mapping[str, Any]) -> int | None:
    """Return the number of tokens K that the client asks for, if it does."""
    number = given.get(NUM_TOKENS)
    if number is not None and (type(number) is not int or number < 1):
        raise InvalidMessage(f"{NUM_TOKENS!r} must be a number of tokens, at least 1")
    return number


def _previous(given: Mapping[str, Any], dim: int) -> np.ndarray | None:
    """Return the rest of the robot's previous chunk, if the client sent it."""
    rest = given.get(PREVIOUS)
    if rest is None:
        return None
    if not (isinstance(rest, np.ndarray) and rest.ndim == 2 and rest.shape[1] == dim):
        raise InvalidMessage(f"{PREVIOUS!r} must be an array of {dim}-D actions, from now on")
    if not np.isfinite(rest).all():
        raise InvalidMessage(f"{PREVIOUS!r} must hold finite numbers")
    return rest


def describe_policy(policy: BasePredictor, decoding: Decoding, deadline_ms: float | None) -> dict[str, Any]:
    """Return the map that a server sends to every client first: a log of a robot can say how its chunks were made."""
    context = policy.observed
    return {
        "server": "oat",
        "policy": policy.kind,
        "decoding": decoding.name,
        "samples": decoding.samples if isinstance(decoding, SampledDecoding) else 1,
        "action_horizon": policy.space.action_horizon,
        "action_dim": policy.space.action_dim,
        "obs_horizon": context.obs_horizon,
        "observations": {
            key: {"shape": list(size), "dtype": "uint8" if key in context.cameras else "float32"}
            for key, size in {**policy.reference, **context.sizes()}.items()
        },
        "tasks": list(context.tasks),
        "deadline_ms": deadline_ms,
        "history": (
            f"observations may come as {context.obs_horizon} frames, oldest first; a single frame is repeated, and "
            "frames of different requests are never joined"
        ),
    }
