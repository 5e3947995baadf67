"""The shapes that all packages agree on; read this file first.

Data (`oat.data`), models and simulators never import each other's implementations: they meet in these types.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Float32, UInt8

from oat.errors import InvalidOption, unknown_name
from oat.protocol import Protocol as EvaluationProtocol

if TYPE_CHECKING:  # these import torch, which takes seconds; this file is imported by everything
    from torch import Tensor

    from oat.policies.decoding import Decoding
    from oat.policies.predictor import Chunk
    from oat.policies.sampling import Noise
    from oat.tokenizers.tokens import Array, TokenLike, Tokens


@dataclass(frozen=True)
class Observation:
    """Hold what policies see of several robots at once: for each row its last H_o frames and its task."""

    values: Mapping[str, np.ndarray]
    """For each key (batch, H_o, …): float vectors, uint8 images (batch, H_o, height, width, 3)."""
    tasks: tuple[str, ...]
    """One string per row."""

    def __len__(self) -> int:
        return len(self.tasks)


@runtime_checkable
class ActionTokenizer(Protocol):
    """Turn chunks of actions (batch, H_a, D_a) into tokens and back; each says which of P.1–P.3 it promises.

    P.1 short: at most `max_tokens` ids for a chunk. P.2 total: every sequence of valid ids decodes. P.3 ordered: every
    prefix decodes, coarse motion first (paper, section III). `oat.tokenizers.base.BaseTokenizer` implements all of it
    but what makes a kind a kind, and adds `fit`.
    """

    total: ClassVar[bool]
    """P.2: whether every sequence of valid ids of an allowed length decodes; False only for FAST."""
    prefix_decodable: ClassVar[bool]
    """P.3: whether sequences of every length from 1 decode; True for OAT."""

    @property
    def action_horizon(self) -> int:
        """Return H_a, the actions of a chunk."""
        ...

    @property
    def action_dim(self) -> int:
        """Return D_a, the numbers of an action."""
        ...

    @property
    def vocab_size(self) -> int:
        """Return the number of ids."""
        ...

    @property
    def max_tokens(self) -> int:
        """Return the tokens of the longest sequence."""
        ...

    def encode(self, actions: "Array", valid_mask: "Array | None" = None) -> "Tokens":
        """Return the tokens of chunks in action units."""
        ...

    def decode(self, tokens: "TokenLike", num_actions: int | None = None) -> "Tensor":
        """Return chunks in action units, or their first actions; raise where a sequence does not decode."""
        ...

    def try_decode(self, tokens: "TokenLike", num_actions: int | None = None) -> "tuple[Tensor, Tensor]":
        """Return chunks and, for each row, whether it decoded; rows that did not are NaN."""
        ...


@runtime_checkable
class ChunkPredictor(Protocol):
    """Decide on a chunk of actions for every row of an observation: a policy in PyTorch, compiled, or exported.

    The harness, the server and the robot loop know policies only so. `oat.policies.predictor.BasePredictor` implements
    all but how observations are read and steps are made.
    """

    @property
    def anytime(self) -> bool:
        """Return whether there is a chunk after every token or denoising step, so that a deadline can be kept."""
        ...

    def predict_chunk(
        self, observation: Observation, decoding: "Decoding | None" = None, noise: "Noise | None" = None
    ) -> "Chunk":
        """Return one chunk for every row: actions (batch, H_a, D_a), whether they are valid, and their tokens."""
        ...

    def stream(
        self, observation: Observation, decoding: "Decoding | None" = None, noise: "Noise | None" = None
    ) -> "Iterator[Chunk]":
        """Yield the chunk after every token or denoising step."""
        ...


@dataclass(frozen=True)
class Demonstration:
    """Hold one attempt of an expert: observation t is what it saw before it took action t."""

    actions: Float32[np.ndarray, "steps action_dim"]
    observations: Mapping[str, np.ndarray]
    """For each key (steps, …): float32 vectors, uint8 images (steps, height, width, 3)."""
    success: bool


@dataclass(frozen=True)
class ExpertConfig:
    """Say how demonstrations are made; equal configurations and seeds give equal demonstrations."""

    cameras: tuple[str, ...] = ()
    """Cameras to record, such as corner2 gripperPOV; none by default, which is much faster."""
    image_size: int = 128
    """Height and width of camera images."""
    noise: float = 0.0
    """Standard deviation of Gaussian noise added to the expert's actions; the noisy action is executed and recorded."""

    def __post_init__(self) -> None:
        if not 0 <= self.noise < float("inf") or self.image_size < 16:
            raise InvalidOption(f"noise must be ≥ 0 and image_size ≥ 16, got {self.noise:g} and {self.image_size}")


@runtime_checkable
class Expert(Protocol):
    """Demonstrate one task, in one process."""

    def demonstrate(self, seed: int) -> Demonstration:
        """Return one attempt from the initial condition that the seed determines."""
        ...


@dataclass(frozen=True)
class Outcome:
    """Hold what an action led to: the next frame, and how far the task is done."""

    observation: Mapping[str, np.ndarray]
    """One frame of every key; nothing where it was not asked for."""
    success: bool
    score: float
    """How far the task is done, in [0, 1]; where a benchmark measures nothing finer, 1 for success."""


@runtime_checkable
class Environment(Protocol):
    """Simulate one task in one process; it is built once and reset to many initial conditions."""

    def reset(self, condition: int) -> Mapping[str, np.ndarray]:
        """Begin an episode at an initial condition; equal conditions begin alike."""
        ...

    def step(self, action: np.ndarray, observe: bool = True) -> Outcome:
        """Take an action; what nobody will look at need not be rendered."""
        ...

    def hold(self) -> np.ndarray:
        """Return the action that keeps the robot where it is, for when a policy gives none."""
        ...


@runtime_checkable
class Filmable(Protocol):
    """Show what happens in an environment, so that videos can be made of it."""

    fps: float
    """Steps per second of simulated time."""

    def render(self, size: int) -> UInt8[np.ndarray, "size size 3"]:
        """Return a picture of what an onlooker sees."""
        ...

    def foresee(self, actions: Float32[np.ndarray, "steps action_dim"]) -> Float[np.ndarray, "points 2"]:
        """Return where the actions would lead from here, in that picture, from its upper left corner (0, 0) to (1, 1).

        The first point is here, then comes one for each action; no points where that cannot be told.
        """
        ...


@runtime_checkable
class StoresStarts(Protocol):
    """Begin episodes at starts that were drawn once and stored, which a condition's number alone does not determine."""

    start: str
    """The fingerprint of the start of this episode, by which records from other starts are told apart."""


Split = Literal["selection", "reporting"]
"""What initial conditions are for: choosing among checkpoints, or the numbers that are reported."""


Demonstrator = Literal["scripted", "human"]
"""Who demonstrates the tasks of a benchmark."""
UNKNOWN_DEMONSTRATOR = "unknown"
"""Who demonstrated where a data set does not say it."""


class Simulator(ABC):
    """A benchmark: its tasks, their environments and experts, and how policies are evaluated in it.

    A new simulator is a file with a subclass, and a line in `oat.sims.SIMULATORS`; nothing else names it. Attributes of
    the class are known without the simulator's packages, so that help, plans and tables do not need them.
    """

    name: ClassVar[str]
    """The name in `oat.sims.SIMULATORS`, under which the command line knows it."""
    robot_type: ClassVar[str]
    fps: ClassVar[float]
    """Actions per second of simulated time."""
    action_names: ClassVar[tuple[str, ...]]
    """One name for each dimension of an action."""
    demonstrator: ClassVar[Demonstrator]
    """It is recorded in every data set; where it is "human", there is no expert to collect from."""
    protocol: ClassVar[EvaluationProtocol]
    """How policies are evaluated."""
    study_tasks: ClassVar[tuple[str, ...]] = ()
    """The tasks of studies, where they are not all: the paper's, where it acts in the benchmark."""
    main_camera: ClassVar[str | None] = None
    """The camera that shows the whole scene, if the simulator renders images."""
    hand_position: ClassVar[slice | None] = None
    """The numbers of `observation.state` that are the hand's position in metres, if there are such."""

    @property
    @abstractmethod
    def version(self) -> str:
        """Return the names and versions of the packages that episodes depend on."""

    @property
    @abstractmethod
    def tasks(self) -> tuple[str, ...]:
        """Return the names of all tasks."""

    @abstractmethod
    def make(self, task: str, cameras: tuple[str, ...] = (), image_size: int = 128) -> Environment:
        """Build the environment of a task, which renders through these cameras."""

    @abstractmethod
    def expert(self, task: str, config: ExpertConfig) -> Expert:
        """Return a scripted demonstrator of a task; raise `SimulatorError` where people demonstrate."""

    @abstractmethod
    def conditions(self, task: str, split: Split) -> Sequence[int]:
        """Return the initial conditions of a split; the two splits never overlap, nor do they with demonstrations."""

    @classmethod
    def who_demonstrated(cls, noted: str | None) -> str:
        """Return who gave demonstrations: as noted with them, and "human" if nothing is known but that people do here.

        None is what checkpoints of before note, which were trained on the benchmark's own demonstrations.
        """
        silent = noted is None or (noted == UNKNOWN_DEMONSTRATOR and cls.demonstrator == "human")
        return cls.demonstrator if silent else str(noted)

    def instruction(self, task: str) -> str:
        """Return what demonstrations and policies call a task: its name, unless a benchmark has words for it."""
        return task

    def check_task(self, task: str) -> None:
        """Raise `UnknownName` for a task that the benchmark does not have."""
        if task not in self.tasks:
            raise unknown_name(f"{self.name} task", task, self.tasks)


@runtime_checkable
class Robot(Protocol):
    """A robot that the fixed-rate loop of `oat.robots` can drive; simulated robots have the same methods."""

    def observe(self) -> Mapping[str, np.ndarray]:
        """Return one frame of every key that the policy sees."""
        ...

    def act(self, action: np.ndarray) -> None:
        """Begin to execute one action, and return without waiting for it to end."""
        ...

    def stop(self) -> None:
        """Hold still; the loop calls this at every step without an action, and at the end of an episode."""
        ...
