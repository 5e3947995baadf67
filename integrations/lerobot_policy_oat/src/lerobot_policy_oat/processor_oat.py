"""What LeRobot does to batches before and after the policy: devices and batch dimensions only."""

from typing import Any

import torch
from lerobot.processor import (
    AddBatchDimensionProcessorStep,
    DeviceProcessorStep,
    NormalizerProcessorStep,
    PolicyAction,
    PolicyProcessorPipeline,
    RenameObservationsProcessorStep,
    UnnormalizerProcessorStep,
)
from lerobot.processor.converters import policy_action_to_transition, transition_to_policy_action
from lerobot.utils.constants import POLICY_POSTPROCESSOR_DEFAULT_NAME, POLICY_PREPROCESSOR_DEFAULT_NAME

from lerobot_policy_oat.configuration_oat import OATConfig

Statistics = dict[str, dict[str, torch.Tensor]]
Processors = tuple[
    PolicyProcessorPipeline[dict[str, Any], dict[str, Any]],
    PolicyProcessorPipeline[PolicyAction, PolicyAction],
]


def make_oat_pre_post_processors(config: OATConfig, dataset_stats: Statistics | None = None) -> Processors:
    """Return the steps that LeRobot's commands expect by name; the normalising ones leave everything as it is."""
    features = {**(config.input_features or {}), **(config.output_features or {})}
    mapping = config.normalization_mapping
    before = [
        RenameObservationsProcessorStep(rename_map={}),
        AddBatchDimensionProcessorStep(),
        DeviceProcessorStep(device=config.device),
        NormalizerProcessorStep(features=features, norm_map=mapping, stats=dataset_stats, device=config.device),
    ]
    after = [
        UnnormalizerProcessorStep(features=config.output_features or {}, norm_map=mapping, stats=dataset_stats),
        DeviceProcessorStep(device="cpu"),
    ]
    return (
        PolicyProcessorPipeline(steps=before, name=POLICY_PREPROCESSOR_DEFAULT_NAME),
        PolicyProcessorPipeline(
            steps=after,
            name=POLICY_POSTPROCESSOR_DEFAULT_NAME,
            to_transition=policy_action_to_transition,
            to_output=transition_to_policy_action,
        ),
    )


# LeRobot looks for a function by the name of each type.
make_quest_pre_post_processors = make_oat_pre_post_processors
make_dp_pre_post_processors = make_oat_pre_post_processors
make_bc_pre_post_processors = make_oat_pre_post_processors
