"""What every policy is: observations → chunk of actions, in one piece or step by step; and its checkpoint."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from oat.checkpoint import config_to_json, staged_checkpoint, write_checkpoint
from oat.data.normalize import Normalizer
from oat.errors import InvalidOption
from oat.interfaces import Observation
from oat.model_card import ModelCard
from oat.nn.transformer import Backbone, Width
from oat.nn.vision import HuggingFaceVision
from oat.policies.context import ContextConfig, ContextEncoder, Values
from oat.policies.decoding import Decoding, Noise
from oat.tokenizers.tokenizer import ActionSpace, Tokens

_LOAD = """import oat

policy = oat.load_policy("DIRECTORY")
chunk = policy.predict_chunk(observation)  # an oat.Observation of one robot or several
"""


@dataclass(frozen=True)
class PolicyConfig:
    """The size of a policy; the defaults are the paper's."""

    width: Width = field(default_factory=Width)
    layers: int = 4
    """Transformer blocks."""

    def __post_init__(self) -> None:
        if self.layers < 1:
            raise InvalidOption("a policy needs at least one layer")


@dataclass(frozen=True)
class Chunk:
    """What a policy decided, row by row."""

    actions: Float[Tensor, "batch time dim"]
    """In action units; NaN in rows that are not valid."""
    valid: Bool[Tensor, " batch"]
    """False where the tokens do not decode, which only FAST's can fail to do."""
    steps: Int64[Tensor, " batch"]
    """Tokens generated, or denoising steps taken."""
    tokens: Tokens | None = None
    log_probabilities: Float[Tensor, "batch tokens"] | None = None
    """Of each generated token under the model, before temperature and top-k; 0 past a row's end."""

    def __getitem__(self, rows: slice) -> "Chunk":
        tokens = None if self.tokens is None else self.tokens[rows]
        log_probabilities = None if self.log_probabilities is None else self.log_probabilities[rows]
        return Chunk(self.actions[rows], self.valid[rows], self.steps[rows], tokens, log_probabilities)


class Policy(nn.Module, ABC):
    """Context encoder and backbone, which all policies share; what is generated, and how, is the kind's."""

    kind: ClassVar[str]

    def __init__(self, context: ContextConfig, space: ActionSpace, config: PolicyConfig) -> None:
        super().__init__()
        self.space, self.config = space, config
        self.context = ContextEncoder(context, config.width.dim)
        self.backbone = Backbone(config.width, config.layers)
        self.trained_on: dict[str, Any] = {}
        """How it was trained (data, split, seed, recipe, measures); stored with every checkpoint."""

    @property
    @abstractmethod
    def action_normalizer(self) -> Normalizer: ...

    @property
    @abstractmethod
    def default_decoding(self) -> Decoding: ...

    @abstractmethod
    def check_decoding(self, decoding: Decoding) -> None:
        """Refuse what this policy cannot do."""

    @abstractmethod
    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, every_step: bool
    ) -> Iterator[Chunk]:
        """The chunk after every step, where it exists, or the last one only."""

    def predict_chunk(
        self,
        observation: Observation,
        decoding: Decoding | None = None,
        noise: Noise | None = None,
        pad_to: int | None = None,
    ) -> Chunk:
        """One chunk for every row.

        Without noise a row's is keyed by its place in the batch. Sums are rounded differently in batches of different
        sizes: with `pad_to` every call computes that many rows, so that a row's chunk is the same whatever its company.
        """
        *_, last = self._start(observation, decoding, noise, every_step=False, pad_to=pad_to)
        return last

    def stream(
        self, observation: Observation, decoding: Decoding | None = None, noise: Noise | None = None
    ) -> Iterator[Chunk]:
        """The chunk after every token or denoising step; without prefixes that decode, only the finished one."""
        return self._start(observation, decoding, noise, every_step=True)

    def _start(
        self,
        observation: Observation,
        decoding: Decoding | None,
        noise: Noise | None,
        every_step: bool,
        pad_to: int | None = None,
    ) -> Iterator[Chunk]:
        """Check everything now; what it gives computes when it is asked."""
        decoding, rows = decoding or self.default_decoding, len(observation)
        self.check_decoding(decoding)
        noise = Noise.of(range(rows), [0] * rows) if noise is None else noise
        if len(noise) != rows:
            raise InvalidOption(f"{rows} observations need as many rows of noise, got {len(noise)}")
        if pad_to is not None and pad_to < rows:
            raise InvalidOption(f"cannot pad {rows} rows to {pad_to}")
        values, tasks = self.context.read(observation, self._reference)
        missing = 0 if pad_to is None else pad_to - rows
        if missing:
            values = {key: _repeat_first(value, missing) for key, value in values.items()}
            tasks, noise = _repeat_first(tasks, missing), Noise(noise.keys + noise.keys[:1] * missing)
        return self._run(values, tasks, decoding, noise, every_step, rows)

    def _run(
        self,
        values: Values,
        tasks: Int64[Tensor, " batch"],
        decoding: Decoding,
        noise: Noise,
        every_step: bool,
        rows: int,
    ) -> Iterator[Chunk]:
        chunks = self.generate(values, tasks, decoding, noise, every_step)
        while True:
            with self._evaluating():
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield chunk[:rows]

    @contextmanager
    def _evaluating(self) -> Iterator[None]:
        """Without gradients and in evaluation mode; who asked for a chunk has his own modes back between two."""
        was_training = self.training
        if was_training:
            self.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            if was_training:
                self.train()

    @property
    def _reference(self) -> dict[str, tuple[int, ...]]:
        """The state that the action transform refers to, which the context need not observe, and its shape."""
        key, dim = self.space.transform.state_key, self.space.state_dim
        return {} if key is None or dim is None else {key: (dim,)}

    def current_state(self, values: Values) -> Float[Tensor, "batch state"] | None:
        """What the action transform refers to, if it does."""
        key = self.space.transform.state_key
        return None if key is None else values[key][:, -1]

    def save(self, directory: str | Path) -> None:
        """Write a checkpoint directory that `load_policy` reads anywhere."""
        with staged_checkpoint(Path(directory)) as staging:
            self.save_files(staging)

    def save_files(self, directory: Path) -> None:
        """Write the checkpoint's files into an existing directory."""
        write_checkpoint(directory, self.kind, self.describe(), self.own_state(), self.card())

    def card(self) -> ModelCard:
        """What the model card beside a checkpoint says."""
        space, seen = self.space, self.context.config
        chunk = f"{space.action_horizon} × {space.action_dim}"
        return ModelCard(
            title=f"{type(self).__name__}: {chunk} actions from {' and '.join(seen.keys)}",
            about=f"Predicts the next {space.action_horizon} actions of a robot from what it observes and its task.",
            load=_LOAD,
            tags=("robotics", "robot-policy", self.kind),
            shapes={
                "actions per chunk × numbers per action": chunk,
                **{f"`{key}`, one frame": " × ".join(map(str, shape)) for key, shape in seen.sizes().items()},
                "frames observed": str(seen.obs_horizon),
                "tasks": str(len(self.context.task.tasks)),
                "applied before normalisation": f"`{json.dumps(config_to_json(space.transform))}`",
                "parameters": f"{sum(parameter.numel() for parameter in self.parameters()):,}",
                "configuration": f"`{json.dumps(config_to_json(self.config))}`",
            },
            ranges=self.action_normalizer.ranges(),
            origin=self.trained_on,
        )

    def describe(self) -> dict[str, Any]:
        """What config.json holds."""
        return {
            "context": config_to_json(_with_architecture(self.context)),
            "space": config_to_json(self.space),
            "config": config_to_json(self.config),
            "trained_on": self.trained_on,
        }

    def own_state(self) -> dict[str, Tensor]:
        """The tensors that model.safetensors holds."""
        return self.state_dict()


def _with_architecture(context: ContextEncoder) -> ContextConfig:
    """The configuration with the vision backbone's architecture, so that loading needs no other files."""
    config = replace(context.config, tasks=tuple(context.task.tasks))
    for encoder in context.vision.values():
        if isinstance(encoder, HuggingFaceVision):
            return replace(config, vision=replace(config.vision, pretrained=encoder.pretrained))
    return config


def _repeat_first(rows: Tensor, times: int) -> Tensor:
    """With its first row as many times more."""
    return torch.cat([rows, rows[:1].expand(times, *rows.shape[1:])])
