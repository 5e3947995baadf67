"""The base of every policy: what all kinds share, what a kind must say, and its checkpoint."""

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat.data.normalize import Normalizer
from oat.errors import InvalidOption
from oat.interfaces import Observation
from oat.io.checkpoints import hash_tensors, staged_checkpoint, write_checkpoint
from oat.io.config_json import config_from_json, config_to_json
from oat.io.model_cards import ModelCard
from oat.io.training_record import Measures, TrainingRecord
from oat.nn.transformer import Backbone
from oat.nn.vision import HuggingFaceVision
from oat.policies.config import PolicyConfig
from oat.policies.context import ContextConfig, ContextEncoder, Values
from oat.policies.learning import HeldOut, Lesson, PolicySetup
from oat.policies.modes import evaluating
from oat.policies.predictor import BasePredictor
from oat.tokenizers.base import BaseTokenizer
from oat.tokenizers.space import ActionSpace

_LOAD = """import oat

policy = oat.load_policy("DIRECTORY")
noise = oat.Noise.of([0], [0])  # one robot's episode 0, chunk 0: count on, so that each chunk is drawn anew
chunk = policy.predict_chunk(observation, noise=noise)  # of an oat.Observation of that robot
"""


class Policy(nn.Module, BasePredictor):
    """Context encoder and backbone, which all policies share; what is generated and learned, and how, is the kind's.

    A new kind is one file with a class like this, and one line in `oat.policies.POLICIES`.
    """

    config_class: ClassVar[type[PolicyConfig]] = PolicyConfig
    exported_as: ClassVar[str | None] = None
    """The class that holds its graphs and runs them, as "module:class"; None where it cannot be exported. A name,
    because exporting is above policies: who only predicts does not import it."""

    def __init__(self, context: ContextConfig, space: ActionSpace, config: PolicyConfig) -> None:
        super().__init__()
        if not isinstance(config, self.config_class):
            raise InvalidOption(f"{self.kind} is configured by {self.config_class.__name__}, got {config}")
        self.space = space
        self.config = config
        self.context = ContextEncoder(context, config.width.dim)
        self.backbone = Backbone(config.width, config.layers)
        self.training_record = TrainingRecord()
        """How it was trained (data, split, seed, recipe, measures); stored with every checkpoint."""

    @classmethod
    @abstractmethod
    def for_training(cls, setup: PolicySetup, config: PolicyConfig) -> "Policy":
        """Return a policy with random weights for these data."""

    @classmethod
    def restoring(
        cls, folder: Path | None, described: Mapping[str, Any], context: ContextConfig, config: PolicyConfig
    ) -> Callable[[], "Policy"]:
        """Return what builds the policy of a checkpoint, without its weights, from what its config.json holds.

        Without a folder, everything is described, also what a checkpoint has in files of its own.
        """
        return partial(cls, context, config_from_json(ActionSpace, described["space"]), config)

    @abstractmethod
    def loss(
        self, module: Callable[..., Any], lesson: Lesson, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the loss of a batch, and further numbers worth logging.

        The forward pass must be a call of `module`: the policy itself, or what distributes it over processes.
        """

    @torch.no_grad()
    def measure(self, held_out: HeldOut) -> Measures:
        """Return held-out measures, of which the score decides which checkpoint is the best."""
        mse = float(held_out.open_loop_errors(self, self.default_decoding)[-1].mean())
        return Measures(score=mse, mse=mse)

    @property
    def method(self) -> str:
        """Return what records and tables call it: what is compared as one method has one name, whatever its size."""
        return self.kind

    @property
    def teacher(self) -> BaseTokenizer | None:
        """Return the tokenizer whose tokens it learns, if it learns tokens."""
        return None

    @property
    @abstractmethod
    def action_normalizer(self) -> Normalizer:
        """Return how actions are brought to model space."""

    @cached_property
    def identity(self) -> str:  # type: ignore[override]
        """Return a hash of all weights, its tokenizer's included, as they are when it is first asked for."""
        return hash_tensors(self.state_dict())

    @property
    def action_scale(self) -> Float[Tensor, " dim"]:
        """Return the normaliser's spread, where each of its numbers is one of an action's; else 1."""
        spread = self.action_normalizer.spread.detach()
        if len(spread) != self.space.action_dim:
            return torch.ones(self.space.action_dim)
        return spread.where(spread > 0, 1.0)

    def to_model_space(
        self, actions: Float[Tensor, "batch time action"], state: Float[Tensor, "batch state"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        """Return transformed and normalised actions, in which errors are measured."""
        return self.action_normalizer.normalize(self.space.transform.forward(actions, state))

    @property
    def observed(self) -> ContextConfig:
        # A text encoder may have taken in tasks that the configuration does not know.
        return replace(self.context.config, tasks=tuple(self.context.task.tasks))

    def read(self, observation: Observation) -> tuple[Values, Int64[Tensor, " batch"]]:
        """Return an observation and its tasks' numbers as tensors on the policy's device, after every check."""
        return self.context.read(observation, self.reference)

    @contextmanager
    def inferring(self) -> Iterator[None]:
        """Compute without gradients and in evaluation mode."""
        with evaluating(self), torch.no_grad():
            yield

    def save(self, directory: str | Path) -> None:
        """Write a checkpoint directory that `load_policy` reads anywhere."""
        with staged_checkpoint(Path(directory), self.kind) as staging:
            self.save_files(staging)

    def save_files(self, directory: Path) -> None:
        """Write the checkpoint's files into an existing directory."""
        write_checkpoint(directory, self.kind, self.describe(), self.own_state(), self.card())

    def card(self) -> ModelCard:
        """Return what the model card beside a checkpoint says."""
        space = self.space
        seen = self.context.config
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
            record=self.training_record,
        )

    def describe(self) -> dict[str, Any]:
        """Return what config.json holds beside the kind."""
        return {
            "context": config_to_json(_with_architecture(self.context)),
            "space": config_to_json(self.space),
            "config": config_to_json(self.config),
            "trained_on": self.training_record.to_json(),
        }

    def own_state(self) -> dict[str, Tensor]:
        """Return the tensors that model.safetensors holds; parts with files of their own are left out."""
        return self.state_dict()


def _with_architecture(context: ContextEncoder) -> ContextConfig:
    """Return the configuration with the vision backbone's architecture, so that loading needs no other files."""
    config = replace(context.config, tasks=tuple(context.task.tasks))
    for encoder in context.vision.values():
        if isinstance(encoder, HuggingFaceVision):
            return replace(config, vision=replace(config.vision, pretrained=encoder.pretrained))
    return config
