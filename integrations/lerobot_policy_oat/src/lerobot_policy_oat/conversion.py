"""Turn a policy that `oat train` has trained into a checkpoint of LeRobot."""

import sys
from pathlib import Path

from lerobot.configs.policies import PreTrainedConfig
from lerobot.configs.types import FeatureType, PolicyFeature
from lerobot.utils.constants import ACTION

from lerobot_policy_oat import modeling_oat
from lerobot_policy_oat.configuration_oat import OATConfig
from lerobot_policy_oat.modeling_oat import OATPolicy
from lerobot_policy_oat.processor_oat import make_oat_pre_post_processors
from oat.errors import InvalidOption
from oat.policies import Policy, load_policy

_POLICIES = (modeling_oat.OATPolicy, modeling_oat.QueSTPolicy, modeling_oat.DPPolicy, modeling_oat.BCPolicy)


def to_lerobot(policy: Policy, out: Path, execute: int = 16) -> OATPolicy:
    """Write a policy of ours where `lerobot-eval --policy.path` finds it, and return it as LeRobot's."""
    found = _class_of(policy)
    context = policy.observed
    config = found.config_class(
        n_obs_steps=context.obs_horizon,
        chunk_size=policy.space.action_horizon,
        n_action_steps=min(execute, policy.space.action_horizon),
        input_features=_features(policy),
        output_features={ACTION: PolicyFeature(FeatureType.ACTION, (policy.space.action_dim,))},
        push_to_hub=False,
    )
    converted = found(config, policy=policy)
    converted.save_pretrained(out)
    for processor in make_oat_pre_post_processors(config):
        processor.save_pretrained(out)
    return converted


def _class_of(policy: Policy) -> type[OATPolicy]:
    tokenizer = None if policy.teacher is None else policy.teacher.kind
    for each in _POLICIES:
        known: type[OATConfig] = each.config_class
        if (known.policy_kind, known.tokenizer_kind) == (policy.kind, tokenizer):
            return each
    types = ", ".join(PreTrainedConfig.get_choice_name(each.config_class) for each in _POLICIES)
    raise InvalidOption(f"LeRobot has no type for a policy of the kind {policy.kind} over {tokenizer}; it has {types}")


def _features(policy: Policy) -> dict[str, PolicyFeature]:
    """Return what the policy sees, images as LeRobot has them: channels first."""
    context = policy.observed
    vectors = {
        key: PolicyFeature(FeatureType.STATE, (dim,))
        for key, dim in zip(context.vectors, context.vector_dims, strict=True)
    }
    images = {
        key: PolicyFeature(FeatureType.VISUAL, (3, *size))
        for key, size in zip(context.cameras, context.camera_sizes, strict=True)
    }
    return {**vectors, **images}


def main() -> None:
    """Convert RUN to OUT."""
    if len(sys.argv) != 3:
        sys.exit("usage: oat-to-lerobot RUN OUT")
    run, out = map(Path, sys.argv[1:])
    to_lerobot(load_policy(run), out)


if __name__ == "__main__":
    main()
