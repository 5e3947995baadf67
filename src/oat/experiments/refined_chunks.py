"""Reconstruct held-out chunks from more and more tokens, and execute the reconstructions in the simulator."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float32

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import STATE, Episodes
from oat.data.transforms import transform_inputs
from oat.errors import SimulatorError
from oat.experiments.chunk_execution import ChunkExecutor, Execution
from oat.experiments.study.methods import OAT
from oat.experiments.study.study import Study
from oat.sims import find_simulator
from oat.sims.rendering import graphics_library
from oat.tokenizers import BaseTokenizer
from oat.tokenizers.measures import ChunkBatch, decode_prefixes, model_errors

DEMONSTRATED = 0
"""Key that stands in place of a number of tokens for the demonstrated actions."""
_PICTURES = 5  # moments of each chunk that are laid over each other


@dataclass(frozen=True)
class RefinedChunk:
    """Hold a held-out chunk, reconstructed from more and more tokens."""

    episode: int
    task: str
    start: int
    actions: dict[int, Float32[np.ndarray, "steps dim"]]
    """Actions decoded from each number of tokens, and as demonstrated."""
    errors: dict[int, float]
    """Mean squared error of each number of tokens, in model space."""
    executed: dict[int, Execution]
    """Executions of the same actions; empty where the simulator could not be brought back."""

    def deviation(self, tokens: int) -> float:
        """Return how far from where the demonstrated actions lead the hand is at the end, in cm."""
        end = self.executed[tokens].path[-1]
        return 100 * float(np.linalg.norm(end - self.executed[DEMONSTRATED].path[-1]))


def refine_chunk(tokenizer: BaseTokenizer, episodes: Episodes, number: int) -> RefinedChunk:
    """Decode the chunk of an episode in which the most happens from every number of tokens."""
    key = tokenizer.space.transform.state_key
    window = WindowConfig(tokenizer.action_horizon, 1, () if key is None else (key,))
    windows = Windows(episodes.select([number]), window)
    start = _most_motion(episodes.observation(STATE)[episodes.frames(number)], tokenizer.action_horizon)
    chunk = ChunkBatch(*transform_inputs(windows[np.array([start])], tokenizer.space.transform))
    decoded = decode_prefixes(tokenizer, chunk.encode(tokenizer), chunk)
    errors = model_errors(tokenizer, decoded, chunk)[0].tolist()
    # Steps past the episode's end were not demonstrated, and are not executed either.
    num_valid = int(chunk.valid.sum())
    actions = {k: decoded[0, k - 1, :num_valid].numpy() for k in OAT.prefixes}
    actions[DEMONSTRATED] = chunk.actions[0, :num_valid].numpy()
    return RefinedChunk(number, episodes.task(number), start, actions, {k: errors[k - 1] for k in OAT.prefixes}, {})


def _most_motion(states: np.ndarray, horizon: int) -> int:
    """Return the step after which the hand, whose position the state begins with, gets farthest within a chunk."""
    # Only chunks that lie within the episode, if it is long enough for one.
    last = max(len(states) - horizon, 1)
    ends = states[np.minimum(np.arange(last) + horizon, len(states) - 1), :3]
    return int(np.linalg.norm(ends - states[:last, :3], axis=1).argmax())


def execute_chunks(
    study: Study, episodes: Episodes, chunks: Sequence[RefinedChunk], filmed: Collection[int]
) -> tuple[list[RefinedChunk], list[str]]:
    """Execute every chunk where the simulator can be brought back to its demonstration, and say where it could not.

    Pictures are taken of the chunks of `filmed` episodes, where the machine can render.
    """
    simulator = find_simulator(study.sim)
    if simulator.demonstrator != "scripted" or simulator.hand_position is None:
        return list(chunks), [f"not executed: {study.sim} cannot be brought back to where its demonstrations began"]
    executor = ChunkExecutor(simulator(), study.data)
    filmed = filmed if graphics_library() is not None else ()
    failures: Counter[str] = Counter()
    executed: list[RefinedChunk] = []
    for chunk in chunks:
        try:
            condition = executor.find_condition(episodes, chunk.episode)
        except SimulatorError as error:
            failures[str(error)] += 1
            executed.append(chunk)
            continue
        pictures = _PICTURES if chunk.episode in filmed else 0
        before = episodes.actions[episodes.frames(chunk.episode)[: chunk.start]]
        executed.append(_execute(executor, chunk, condition, before, pictures))
    return executed, _remarks(len(chunks), failures, filmed)


def _execute(
    executor: ChunkExecutor, chunk: RefinedChunk, condition: int, before: np.ndarray, pictures: int
) -> RefinedChunk:
    """Execute the demonstrated and every decoded version of a chunk, each with so many pictures."""
    moments = np.linspace(0, len(chunk.actions[DEMONSTRATED]), pictures).astype(int).tolist()
    executed = {
        tokens: executor.execute(chunk.task, condition, before, actions, moments)
        for tokens, actions in chunk.actions.items()
    }
    return replace(chunk, executed=executed)


def _remarks(count: int, failures: Counter[str], filmed: Collection[int]) -> list[str]:
    remarks = [f"not executed: {number} of the episodes, {reason}" for reason, number in failures.items()]
    if count > failures.total():
        reached = "in which the demonstrated actions led to the recorded observations again"
        remarks.append(f"executed: the chunks of {count - failures.total()} of the episodes, {reached}")
    if not filmed:
        remarks.append("no pictures: no graphics library")
    return remarks
