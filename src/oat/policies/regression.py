"""Behaviour cloning by regression on the same backbone: the whole chunk in one pass, without tokens and noise."""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor, nn

from oat.data.normalize import Normalizer
from oat.errors import InvalidOption
from oat.nn.mlp import ResidualMLP
from oat.nn.transformer import sinusoidal_positions
from oat.policies.config import PolicyConfig, RegressionConfig
from oat.policies.context import ContextConfig, Values
from oat.policies.decoding import Decoding, OnePass
from oat.policies.learning import Lesson, PolicySetup
from oat.policies.policy import Policy
from oat.policies.predictor import BasePredictor, Chunk
from oat.policies.sampling import Noise
from oat.policies.stopping import StoppingRule
from oat.tokenizers.space import ActionSpace

Actions = Float[Tensor, "batch time numbers"]

_ERRORS: dict[str, Callable[[Tensor], Tensor]] = {"mse": torch.square, "l1": torch.abs}


def regression_error(
    predicted: Actions, target: Actions, valid: Bool[Tensor, "batch time"], loss: str
) -> Float[Tensor, " batch"]:
    """Return each row's mean squared ("mse") or absolute ("l1") error over its valid steps."""
    errors = _ERRORS[loss](predicted.float() - target).mean(-1) * valid
    return errors.sum(1) / valid.sum(1)


class RegressionPredictor(BasePredictor):
    """Predict a chunk in one pass, which PyTorch's regression policy and exported ones do each in their own way."""

    has_no = "predicts a chunk in one pass, generates no tokens and does not denoise"

    @abstractmethod
    def predict_actions(self, values: Values, tasks: Int64[Tensor, " batch"]) -> Float[Tensor, "batch time action"]:
        """Return the chunk in the robot's units."""

    @property
    def default_decoding(self) -> OnePass:
        return OnePass()

    def check_decoding(self, decoding: Decoding) -> None:
        """Raise `InvalidOption` for what is not a single pass."""
        if not isinstance(decoding, OnePass):
            raise InvalidOption(f"a regression policy decodes by OnePass, got {decoding}")

    @property
    def anytime(self) -> bool:
        """Return True: the only step makes a chunk, which a deadline cannot make shorter."""
        return True

    def generate(
        self, values: Values, tasks: Int64[Tensor, " batch"], decoding: Any, noise: Noise | None, rule: StoppingRule
    ) -> Iterator[Chunk]:
        """Yield the only chunk; it depends neither on noise nor on a stopping rule."""
        actions = self.predict_actions(values, tasks)
        steps = torch.ones(len(actions), dtype=torch.int64, device=actions.device)
        yield Chunk(actions, steps > 0, steps)


class RegressionPolicy(RegressionPredictor, Policy):
    """Read the context by learned queries, one for the chunk or one for each action, and regress actions on them."""

    kind = "regression"
    config_class = RegressionConfig
    config: RegressionConfig
    exported_as = "oat.export.regression_graphs:GraphRegressionPolicy"

    def __init__(self, context: ContextConfig, space: ActionSpace, config: PolicyConfig | None = None) -> None:
        super().__init__(context, space, config or RegressionConfig())
        size = self.config
        self.normalizer = Normalizer(space.model_dim)
        count = 1 if size.queries == "chunk" else space.action_horizon
        # Learned, but neighbours in time begin alike.
        self.queries = nn.Parameter(sinusoidal_positions(count, size.width.dim))
        outputs = space.action_horizon * space.model_dim // count
        self.head = ResidualMLP(size.width.dim, size.mlp_width, size.mlp_depth, outputs)

    @classmethod
    def for_training(cls, setup: PolicySetup, config: PolicyConfig) -> "RegressionPolicy":
        """Return a policy with random weights that normalises actions as these data need."""
        policy = cls(setup.context, setup.space, config)
        policy.normalizer = setup.normalizer
        return policy

    @property
    def method(self) -> str:
        """Return what tables call it: behaviour cloning."""
        return "bc"

    def forward(
        self, values: Values, tasks: Int64[Tensor, " batch"], generator: torch.Generator | None = None
    ) -> Actions:
        """Return chunks in model space; with a generator images are cropped at random."""
        context = self.context(values, tasks, generator)
        read = self.backbone(self.queries.expand(len(context), -1, -1), context, causal=False)
        return self.head(read).view(len(context), self.space.action_horizon, self.space.model_dim)

    def loss(
        self, module: Callable[..., Any], lesson: Lesson, generator: torch.Generator
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        """Return the mean error of the predicted actions over valid steps."""
        assert lesson.actions is not None
        assert lesson.valid_mask is not None
        predicted = module(lesson.values, lesson.tasks, generator)
        return regression_error(predicted, lesson.actions, lesson.valid_mask, self.config.loss).mean(), {}

    @property
    def action_normalizer(self) -> Normalizer:
        return self.normalizer

    def predict_actions(self, values: Values, tasks: Int64[Tensor, " batch"]) -> Float[Tensor, "batch time action"]:
        """Return the chunk in the robot's units, kept within the range of the data."""
        return self.space.to_actions(self(values, tasks), self.normalizer, self.current_state(values))
