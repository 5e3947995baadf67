"""Configure what to evaluate; importing this is cheap, so that the command line can show its help at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import tyro

from oat.errors import InvalidOption
from oat.sims import choose_view
from oat.sims.config import SimulatorName

Measure = Literal["success", "score"]
"""What policies are compared by: whether they succeeded, or the best score of each episode."""
DecodingName = Literal["usual", "tokens", "paper"]
"""How tokens become a chunk: as a policy was trained for, without its remainder, or as in the paper."""


@dataclass(frozen=True)
class EvalConfig:
    """Choose a policy, a simulator, and how many episodes to run."""

    policy: tyro.conf.Positional[Path]
    """The policy's checkpoint or run."""
    sim: SimulatorName
    """The benchmark to act in."""
    out: Path
    """Directory of the records; an evaluation that was interrupted continues there."""
    tasks: tuple[str, ...] = ()
    """Task names, such as box-close coffee-pull; by default the benchmark's tasks that the policy was trained on."""
    episodes: int = 50
    """Episodes per task and seed."""
    seeds: int = 1
    """Groups of episodes, each with initial conditions of its own; the paper has 5."""
    first_seed: int = 0
    """The first group's number: policies from other training seeds may meet conditions of their own."""
    num_tokens: tuple[int, ...] = ()
    """Prefix lengths K to evaluate, such as 1 2 4 8; all tokens by default."""
    decoding: DecodingName = "usual"
    """How tokens become a chunk: as the policy was trained for, without its remainder, or as in the paper, sampled and
    without."""
    temperature: float | tuple[float, ...] | None = None
    """Temperature of token sampling, or those of the first token, the second, …, of which the last holds for the rest;
    by default that which the policy was trained for, if it samples at all."""
    top_k: int | tuple[int, ...] = 10
    """Sample among this many most likely tokens, 0 for all; for all tokens, or for the first, the second, …; a number
    other than 10 samples."""
    greedy: bool = False
    """Take the most likely token always, whatever the policy was trained for."""
    remainder: bool = False
    """Insist on the remainder, which makes the tokens' choice exact: refused if the policy was trained without one."""
    denoising_steps: int | None = None
    """Denoising steps of a diffusion policy; 10 by default."""
    samples: int = 1
    """N: draw so many chunks and execute one of them; more than one are sampled, whatever the policy was trained
    for."""
    choose: str = "medoid"
    """Which of several samples is executed: likelihood, the most likely; medoid, the one nearest to the others;
    coherent, the one nearest to the rest of the previous chunk; contrast, that and unlike a weaker policy; guided, the
    medoid of samples that are compared with the previous chunk while their tokens are chosen."""
    weaker: Path | None = None
    """The weaker policy of --choose contrast, a checkpoint or run; by default the same one after its first step."""
    binary: tuple[int, ...] = ()
    """Dimensions of an action with two values, such as a gripper's, which --choose medoid decides by majority."""
    stop: tuple[str, ...] = ()
    """When each chunk has enough tokens, one evaluation for each rule: residual=0.02 and value=0.001 with --head, in
    action units (both are experimental); fixed=4; random=20/30/50 has one, two or three tokens in so many percent of
    chunks, and matched=RECORDS as many as another evaluation took, at random; hindsight=0.02 draws all and keeps the
    fewest that do nearly the same, which saves no time and tells what knowing it would save."""
    head: Path | None = None
    """The stopping head of residual and value, and of percentages, which oat calibrate makes."""
    delay: int = 0
    """Steps that a chunk takes to compute; meanwhile the previous one is executed."""
    commit: int = 0
    """Choose among samples whose first so many actions agree with the previous chunk's; with --delay, as many."""
    execute: int | None = None
    """Actions of each chunk that are executed, if not the protocol's 16."""
    split: Literal["reporting", "selection"] = "reporting"
    """Initial conditions for reported numbers, or those for choosing among checkpoints."""
    videos: int = 0
    """Film this many episodes of every task and decoding, the first ones, into OUT/videos."""
    workers: int | None = None
    """Simulator processes; by default one for each core of this machine, or of the Ray cluster."""
    batch: int = 16
    """Chunks that the policy computes together; equal values give equal records, whatever the number of workers."""
    backend: Literal["local", "ray"] = "local"
    """Where simulators run: in processes of this machine, or on a Ray cluster; the policy runs here."""
    address: str | None = None
    """The Ray cluster's address; by default the one that is running here, else one is started for this evaluation."""
    view: str | None = None
    """How the benchmark is shown to the policy, such as lerobot for metaworld; by default as it is by itself."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sim", choose_view(self.sim, self.view))
        counts = {"episodes": self.episodes, "seeds": self.seeds, "batch": self.batch, "workers": self.workers}
        counts["samples"] = self.samples
        for name, count in counts.items():
            if count is not None and count < 1:
                raise InvalidOption(f"{name} must be at least 1, got {count}")
        may_be_none = {"videos": self.videos, "first_seed": self.first_seed, "delay": self.delay, "commit": self.commit}
        for name, count in may_be_none.items():
            if count < 0:
                raise InvalidOption(f"{name} must be at least 0, got {count}")
        if self.delay and self.commit not in (0, self.delay):
            raise InvalidOption(
                f"with --delay {self.delay} so many actions are executed before a chunk is there: commit to as many, "
                f"got {self.commit}"
            )
        if self.delay and self.head is not None:
            raise InvalidOption(
                "a stopping head tells the error of a chunk's first actions, and with --delay the first are not "
                "executed: leave out --head"
            )
        for name, values in (("tasks", self.tasks), ("num_tokens", self.num_tokens), ("stop", self.stop)):
            if len(set(values)) != len(values):
                raise InvalidOption(f"{name} must be distinct, got {' '.join(map(str, values))}")
        if self.address is not None and self.backend != "ray":
            raise InvalidOption("an address is for --backend ray")
