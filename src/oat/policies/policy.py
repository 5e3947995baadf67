"""What every policy of ours is made of, and its checkpoint."""

import json
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat.data.normalize import Normalizer
from oat.errors import InvalidOption
from oat.interfaces import Observation
from oat.io.checkpoints import config_to_json, staged_checkpoint, write_checkpoint
from oat.io.model_cards import ModelCard
from oat.io.training_record import TrainingRecord
from oat.nn.transformer import Backbone
from oat.nn.vision import HuggingFaceVision
from oat.nn.width import Width
from oat.policies.context import ContextConfig, ContextEncoder, Values
from oat.policies.predictor import ChunkPredictor
from oat.tokenizers.space import ActionSpace

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


class Policy(nn.Module, ChunkPredictor):
    """Context encoder and backbone, which all policies share; what is generated, and how, is the kind's."""

    def __init__(self, context: ContextConfig, space: ActionSpace, config: PolicyConfig) -> None:
        super().__init__()
        self.space, self.config = space, config
        self.context = ContextEncoder(context, config.width.dim)
        self.backbone = Backbone(config.width, config.layers)
        self.training_record = TrainingRecord()
        """How it was trained (data, split, seed, recipe, measures); stored with every checkpoint."""

    @property
    @abstractmethod
    def action_normalizer(self) -> Normalizer: ...

    def to_model_space(
        self, actions: Float[Tensor, "batch time action"], state: Float[Tensor, "batch state"] | None = None
    ) -> Float[Tensor, "batch time dim"]:
        """Transformed and normalised actions, in which errors are measured."""
        return self.action_normalizer.normalize(self.space.transform.forward(actions, state))

    @property
    def observed(self) -> ContextConfig:
        return replace(self.context.config, tasks=tuple(self.context.task.tasks))

    def read(self, observation: Observation) -> tuple[Values, Int64[Tensor, " batch"]]:
        return self.context.read(observation, self.reference)

    @contextmanager
    def inferring(self) -> Iterator[None]:
        """Without gradients and in evaluation mode."""
        was_training = self.training
        if was_training:
            self.eval()
        try:
            with torch.no_grad():
                yield
        finally:
            if was_training:
                self.train()

    def save(self, directory: str | Path) -> None:
        """Write a checkpoint directory that `load_policy` reads anywhere."""
        with staged_checkpoint(Path(directory), self.kind) as staging:
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
            record=self.training_record,
        )

    def describe(self) -> dict[str, Any]:
        """What config.json holds."""
        return {
            "context": config_to_json(_with_architecture(self.context)),
            "space": config_to_json(self.space),
            "config": config_to_json(self.config),
            "trained_on": self.training_record.to_json(),
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
