"""Measure for how much of the time the disc of PushT stands still, by ways to decode one policy, and in demonstrations.

OMP_NUM_THREADS=1 python benchmarks/standstill.py POLICY --data pusht_cchi_v7_replay.zarr [--episodes 30] [--execute 8]

A policy that waits where people waited, for what will not come, stands still for ever. What is executed of a chunk
counts as standing still if the disc ends less than 8 pixels from where it began, and the block less than 2. Initial
conditions are those for choosing, so that what is learned from this may be used.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

from pathlib import Path

import numpy as np
import torch
import tyro
from rich.console import Console

import oat
from oat.data.episodes import STATE, open_dataset
from oat.interfaces import Observation
from oat.io.progress import progress_bar
from oat.policies import AutoregressivePolicy, DecodingOptions, Noise
from oat.policies.decoding import Decoding
from oat.sims.pusht import PushT, PushTEnv
from oat.tables.markdown import to_markdown
from oat.tables.table import Table

WAYS = {
    "made exact by regression": DecodingOptions(greedy=True, remainder=True),
    "the most likely tokens": DecodingOptions(greedy=True, remainder=False),
    "T = 0.5": DecodingOptions(temperature=0.5, remainder=False),
    "T = 1": DecodingOptions.paper(),
}
_STAYS = (8.0, 2.0)  # pixels of the disc, of the block


def stands_still(before: np.ndarray, after: np.ndarray) -> bool:
    """Return whether neither disc nor block has moved between two states."""
    moved = (np.linalg.norm(after[part] - before[part]) for part in (slice(0, 2), slice(2, 4)))
    return all(distance < limit for distance, limit in zip(moved, _STAYS, strict=True))


def standstill_of_demonstrations(data: Path, executed: int) -> float:
    """Return the share of stretches of so many steps in which people stood still."""
    episodes = open_dataset(data)
    states = episodes.observations[STATE][np.arange(sum(episodes.lengths))]
    ends = np.cumsum(episodes.lengths)
    found = [
        stands_still(states[first], states[first + executed])
        for begin, end in zip(ends - episodes.lengths, ends, strict=True)
        for first in range(begin, end - executed, executed)
    ]
    return float(np.mean(found))


class Episode:
    """Run one episode of PushT, and count where it stands still."""

    def __init__(self, condition: int, obs_horizon: int, limit: int) -> None:
        self.env = PushTEnv()
        self.states = [self.env.reset(condition)[STATE]] * obs_horizon
        self.limit = limit
        self.steps = 0
        self.score = 0.0
        self.solved = False
        self.still: list[bool] = []

    @property
    def over(self) -> bool:
        """Return whether it has succeeded, or had its steps."""
        return self.solved or self.steps >= self.limit

    def act(self, actions: np.ndarray) -> None:
        """Execute actions until the episode is over."""
        before = self.states[-1]
        for action in actions:
            if self.over:
                return  # a stretch that was cut off is held against none
            outcome = self.env.step(action)
            self.states.append(outcome.observation[STATE])
            self.score = max(self.score, outcome.score)
            self.solved = outcome.success
            self.steps += 1
        self.still.append(stands_still(before, self.states[-1]))


def run(policy: AutoregressivePolicy, decoding: Decoding, count: int, executed: int) -> tuple[str, ...]:
    """Return score, success and standstill of so many episodes, in percent."""
    horizon = policy.observed.obs_horizon
    conditions = PushT().conditions("pusht", "selection")[:count]
    episodes = [Episode(condition, horizon, PushT.protocol.max_steps) for condition in conditions]
    (task,) = policy.context.config.tasks
    with progress_bar(decoding.name, count) as bar:
        number = 0
        while running := [each for each in episodes if not each.over]:
            seen = np.stack([np.stack(each.states[-horizon:]) for each in running])
            noise = Noise.of([episodes.index(each) for each in running], [number] * len(running))
            with torch.no_grad():
                chunk = policy.predict_chunk(Observation({STATE: seen}, (task,) * len(running)), decoding, noise)
            for each, actions in zip(running, chunk.actions.numpy()[:, :executed], strict=True):
                each.act(actions)
            number += 1
            bar.advance(sum(each.over for each in running))
    still = np.mean([each for episode in episodes for each in episode.still])
    means = (np.mean([each.score for each in episodes]), np.mean([each.solved for each in episodes]), still)
    return tuple(f"{100 * float(mean):.1f}" for mean in means)


def main(policy: tyro.conf.Positional[Path], data: Path, episodes: int = 30, execute: int = 8) -> None:
    """Print how the policy fares by each way to decode, and how often people stood still.

    Args:
        policy: A policy of PushT's states that was trained with a remainder.
        data: PushT's demonstrations.
        episodes: Episodes of every way.
        execute: Actions that are executed of every chunk.
    """
    loaded = oat.load_policy(policy)
    assert isinstance(loaded, AutoregressivePolicy)
    people = f"{100 * standstill_of_demonstrations(data, execute):.1f}"
    rows = []
    for name, options in WAYS.items():
        (decoding,) = loaded.decodings(options)
        rows.append((name, *run(loaded, decoding, episodes, execute)))
    rows.append(("people", "", "", people))
    title = f"PushT, {execute} executed, {episodes} episodes"
    Console().print(to_markdown(Table(title, ("", "score %", "success %", "stands still %"), tuple(rows))), width=200)


if __name__ == "__main__":
    tyro.cli(main)
