"""The policies as LeRobot trains, saves and runs them; all of them are one class around a policy of `oat`."""

from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import torch
from lerobot.configs.policies import PreTrainedConfig
from lerobot.policies.pretrained import PreTrainedPolicy
from lerobot.utils.constants import ACTION
from torch import Tensor

from lerobot_policy_oat.building import policy_for
from lerobot_policy_oat.configuration_oat import BCConfig, DPConfig, OATConfig, QueSTConfig
from lerobot_policy_oat.observing import History, Reader
from lerobot_policy_oat.restoring import local_folder, restore
from oat.errors import InvalidOption
from oat.interfaces import Observation
from oat.nn.transformer import lay_out_by_rows
from oat.policies import Noise, Policy
from oat.policies.description import build_policy, describe_policy
from oat.policies.learning import Lesson


class OATPolicy(PreTrainedPolicy):
    """Train and run a policy of `oat`; what it is, `config.description` tells."""

    config_class = OATConfig
    name = "oat"
    config: OATConfig

    def __init__(
        self, config: OATConfig, dataset_stats: Any = None, dataset_meta: Any = None, policy: Policy | None = None
    ) -> None:
        super().__init__(config)
        self.policy = policy or _make(config, dataset_meta)
        # LeRobot writes the optimizer's numbers, which lie as the parameters do, and refuses other layouts.
        lay_out_by_rows(self.policy)
        config.description = describe_policy(self.policy)
        self._reader = Reader(self.policy.observed)
        self._decoding = self.policy.decodings(config.decoding_options())[0]
        self._history = History(config.n_obs_steps)
        self._queue: deque[Tensor] = deque()
        self._episode = 0
        self._chunks = 0
        self.reset()

    @classmethod
    def from_pretrained(
        cls, pretrained_name_or_path: str | Path, *, config: PreTrainedConfig | None = None, **options: Any
    ) -> Self:
        """Return the policy of a checkpoint; raise `CheckpointError` for one that describes more than it holds."""
        folder = local_folder(pretrained_name_or_path, options)
        if config is None:
            config = PreTrainedConfig.from_pretrained(folder)
        if isinstance(config, OATConfig) and config.description is not None:
            options["policy"] = restore(config, config.description, folder)
        loaded: Self = super().from_pretrained(folder, config=config, **options)
        return loaded

    def get_optim_params(self) -> Any:
        """Return the parameters that learn: the tokenizer's do not."""
        return [parameter for parameter in self.parameters() if parameter.requires_grad]

    def reset(self) -> None:
        """Begin an episode, with other random numbers than the last."""
        self._history.clear()
        self._queue.clear()
        self._chunks = 0
        self._episode = int(torch.randint(2**31, ()))

    def forward(self, batch: dict[str, Any]) -> tuple[Tensor, dict[str, float]]:
        """Return the loss of a training batch."""
        policy = self.policy
        values = self._reader.values(batch, frames=True)
        actions = batch[ACTION].float()
        rows = len(actions)
        valid = ~batch["action_is_pad"]
        tasks = policy.context.task.find(self._reader.tasks(batch, rows)).to(actions.device)
        state = policy.current_state(values)
        tokens = None if policy.teacher is None else policy.teacher.encode(actions, valid, state)
        lesson = Lesson(values, tasks, policy.to_model_space(actions, state), valid, tokens)
        # Drawn from PyTorch's own generator, whose state LeRobot keeps with a checkpoint.
        generator = torch.Generator().manual_seed(int(torch.randint(2**62, ())))
        loss, shown = policy.loss(policy, lesson, generator)
        return loss, {name: float(value) for name, value in shown.items()}

    def supports_rtc(self) -> bool:
        """Return that chunks can be asked for while others are executed, which LeRobot does from 0.6 on."""
        return True

    @torch.no_grad()
    def predict_action_chunk(
        self,
        batch: dict[str, Any],
        inference_delay: int | None = None,
        prev_chunk_left_over: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        """Take the current frame, and return the chunk (batch, H_a, D_a) in action units.

        What will have been executed before this chunk arrives, `inference_delay` actions that are left of the one
        before, is taken from there: the chunk goes on from what the robot does, and not from what it would have done.
        """
        self._history.add(self._reader.values(batch, frames=False))
        chunk = self._predict(batch)
        if prev_chunk_left_over is not None and inference_delay:
            left = prev_chunk_left_over[..., :inference_delay, :].to(chunk)
            chunk[:, : left.shape[-2]] = left
        return chunk

    @torch.no_grad()
    def select_action(self, batch: dict[str, Any], **_: Any) -> Tensor:
        """Take the current frame, and return one action (batch, D_a): the next of the chunk, or the first of a new."""
        self._history.add(self._reader.values(batch, frames=False))
        if not self._queue:
            chunk = self._predict(batch)[:, : self.config.n_action_steps]
            self._queue.extend(chunk.unbind(1))
        return self._queue.popleft()

    def _predict(self, batch: Mapping[str, Any]) -> Tensor:
        values = {key: value.cpu().numpy() for key, value in self._history.stacked().items()}
        rows = len(next(iter(values.values())))
        noise = Noise.of([self._episode + row for row in range(rows)], [self._chunks] * rows)
        self._chunks += 1
        observation = Observation(values, tuple(self._reader.tasks(batch, rows)))
        # Clones, because a chunk may be made in inference mode, and gradients may be recorded here.
        return self.policy.predict_chunk(observation, self._decoding, noise).actions.clone()


class QueSTPolicy(OATPolicy):
    """Train and run a next-token policy over QueST's tokens."""

    config_class = QueSTConfig
    name = "quest"


class DPPolicy(OATPolicy):
    """Train and run a diffusion policy."""

    config_class = DPConfig
    name = "dp"


class BCPolicy(OATPolicy):
    """Train and run behaviour cloning by chunk regression."""

    config_class = BCConfig
    name = "bc"


def _make(config: OATConfig, dataset_meta: Any) -> Policy:
    """Return the policy that the configuration describes, or else a new one for the data set."""
    if config.description is not None:
        return build_policy(config.description)
    if dataset_meta is None:
        raise InvalidOption(
            f"a new {config.type} policy needs a data set to be trained on; to act, give a checkpoint: --policy.path"
        )
    return policy_for(config, dataset_meta.root)
