"""Stage 3 of the pipeline: observation → chunk.

A new policy is one file with its configuration and its class, and one line in `POLICIES`. Importing this package does
not import torch; the classes are imported when they are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oat.io.kinds import Kinds, Later
from oat.policies.config import AutoregressiveConfig, DiffusionConfig, PolicyConfig, RegressionConfig

if TYPE_CHECKING:
    from oat.policies.autoregressive import AutoregressivePolicy
    from oat.policies.decoding import Decoding, DecodingOptions, Denoising, OnePass, TokenDecoding
    from oat.policies.diffusion import DiffusionPolicy
    from oat.policies.loading import load_policy
    from oat.policies.policy import Policy
    from oat.policies.predictor import BasePredictor, Chunk
    from oat.policies.regression import RegressionPolicy
    from oat.policies.sampling import Noise

__all__ = [
    "POLICIES",
    "AutoregressivePolicy",
    "BasePredictor",
    "Chunk",
    "Decoding",
    "DecodingOptions",
    "Denoising",
    "DiffusionPolicy",
    "Noise",
    "OnePass",
    "Policy",
    "PolicyConfig",
    "RegressionPolicy",
    "TokenDecoding",
    "load_policy",
]

POLICIES: "Kinds[Policy]" = Kinds(
    "policy",
    {
        "autoregressive": Later("oat.policies.autoregressive", "AutoregressivePolicy", AutoregressiveConfig),
        "diffusion": Later("oat.policies.diffusion", "DiffusionPolicy", DiffusionConfig),
        "regression": Later("oat.policies.regression", "RegressionPolicy", RegressionConfig),
    },
)

_LATER = {
    "AutoregressivePolicy": "oat.policies.autoregressive",
    "Chunk": "oat.policies.predictor",
    "BasePredictor": "oat.policies.predictor",
    "Decoding": "oat.policies.decoding",
    "DecodingOptions": "oat.policies.decoding",
    "Denoising": "oat.policies.decoding",
    "DiffusionPolicy": "oat.policies.diffusion",
    "Noise": "oat.policies.sampling",
    "OnePass": "oat.policies.decoding",
    "Policy": "oat.policies.policy",
    "RegressionPolicy": "oat.policies.regression",
    "TokenDecoding": "oat.policies.decoding",
    "load_policy": "oat.policies.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name]), name)
