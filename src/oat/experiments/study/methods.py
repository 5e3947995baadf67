"""The methods that the paper compares, and the variants that it takes apart."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from oat.tokenizers import TOKENIZERS

RunKind = Literal["tokenizers", "policies", "records"]


@dataclass(frozen=True)
class Method:
    """Describe a policy and its tokenizer, if it has one, as tables and directories call them."""

    name: str
    """Name of the method in tables."""
    slug: str
    """Name of the method in directories."""
    tokenizer: str | None
    """The kind in `oat.tokenizers.TOKENIZERS` whose tokens its policy learns, if it learns tokens."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Departures from the preset's tokenizer, named as on the command line."""
    prefixes: tuple[int, ...] = ()
    """Numbers of tokens K to act from; none where only the whole sequence decodes."""
    action_horizon: int = 32
    policy: str = "autoregressive"
    """The kind in `oat.policies.POLICIES`."""
    slow: bool = False
    """Whether its sequences are so long that fewer training seeds are affordable."""
    same_steps_as: str | None = None
    """Slug of the method at whose pace it is trained: an ablation that computes the same differs in one thing only."""
    policy_paced_as: str | None = None
    """Slug of the method whose policy computes the same in a step, where only their tokenizers differ."""
    minutes: float | None = None
    """Minutes of training on one thread, if not the study's."""
    tokenizer_of: str | None = None
    """Slug of the method whose tokenizer it takes: a variant of the policy alone."""
    policy_options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Departures from the preset's policy and its recipe, named as on the command line."""

    @property
    def learned_tokenizer(self) -> bool:
        """Return whether its tokenizer is trained step by step, and so has a part of the minutes."""
        return self.tokenizer is not None and TOKENIZERS.config(self.tokenizer).trained()

    def run(self, kind: RunKind, seed: int) -> str:
        """Return the name of a run of that kind, which is its directory in a study."""
        return f"{kind}/{self.slug_of(kind)}-seed{seed}"

    def paced_as(self, kind: RunKind) -> str:
        """Return the slug of the method whose steps of that kind tell how long its own take."""
        if kind == "policies" and self.policy_paced_as is not None:
            return self.policy_paced_as
        return self.same_steps_as or self.slug_of(kind)

    def slug_of(self, kind: RunKind) -> str:
        """Return the slug of the method whose run of that kind it has: its own, or that of a shared tokenizer."""
        return self.tokenizer_of or self.slug if kind == "tokenizers" else self.slug

    def label(self, tokens: int | None) -> str:
        """Return what tables call it where it acts from so many tokens: OAT_4 acts from four."""
        return self.name if tokens is None else f"{self.name}_{tokens}"


OAT = Method("OAT", "oat", "oat", prefixes=(1, 2, 4, 8))
UNORDERED = Method("OAT×", "oat-unordered", "oat", {"keep": "full"}, (8,), policy_paced_as="oat")
FULL_REGISTERS = Method(
    "OAT [full registers]",
    "oat-full-registers",
    "oat",
    {"register_attention": "full"},
    (1, 2, 4, 8),
    same_steps_as="oat",
)
UNORDERED_FULL_REGISTERS = Method(
    "OAT× [full registers]",
    "oat-unordered-full-registers",
    "oat",
    {"keep": "full", "register_attention": "full"},
    (8,),
    same_steps_as="oat-unordered",
    policy_paced_as="oat",
)
FLOW = Method("OAT [flow decoder]", "oat-flow", "oat", {"decoder": "flow"}, (1, 2, 4, 8))
PAPER_OBJECTIVE = Method(
    "OAT [the paper's objective]",
    "oat-paper-objective",
    "oat",
    {"keep": "uniform", "prefixes": 1, "balance": 0.0, "spread": 0.0},
    (1, 2, 4, 8),
)
PAPER_POLICY = replace(
    OAT,
    name="OAT [the paper's policy]",
    slug="oat-paper-policy",
    policy_options={"codes": "classes", "soft_targets": 0.0, "remainder": 0.0, "greedy": False, "weight_decay": 0.01},
    tokenizer_of="oat",
)
CLASSES = replace(
    PAPER_POLICY,
    name="OAT [classes]",
    slug="oat-classes",
    policy_options={"codes": "classes", "soft_targets": 0.0, "remainder": 0.0},
)
HARD_TARGETS = replace(
    PAPER_POLICY,
    name="OAT [hard targets]",
    slug="oat-hard-targets",
    policy_options={"soft_targets": 0.0, "remainder": 0.0},
)
TOKENS_ALONE = replace(
    PAPER_POLICY, name="OAT [tokens alone]", slug="oat-tokens-alone", policy_options={"remainder": 0.0}
)
RVQ = Method("RVQ", "rvq", "rvq", prefixes=(1, 2, 4, 8), same_steps_as="oat")
"""Ordered as OAT is, but by residuals; its fitting takes seconds, so that its policy has all of the minutes."""
QUEST = Method("QueST", "quest", "quest")
FAST = Method("FAST", "fast", "fast", slow=True)
BIN = Method("Bin", "bin", "bin", slow=True)
DP = Method("DP", "dp", None, policy="diffusion")
BC = Method("BC", "bc", None, policy="regression")

COMPARED = (DP, BIN, FAST, QUEST, OAT)
"""Methods of the paper's main table."""

BASELINES = (BC,)
"""Beside them in our main table: what a tokenised policy must not lose to. The paper has no numbers of them."""

LEVEL_SETS = ((8, 6, 5), (8, 8, 8), (8, 5, 5, 5), (8, 8, 6, 5), (7, 5, 5, 5, 5))


def with_minutes(method: Method, minutes: float) -> Method:
    """Return a method that is trained for other minutes than a study's, and acts from all tokens."""
    return replace(
        method,
        name=f"{method.name} [{minutes:g} min]",
        slug=f"{method.slug}-{minutes:g}min",
        prefixes=method.prefixes[-1:],
        same_steps_as=method.same_steps_as or method.slug,
        minutes=minutes,
    )


def with_levels(levels: tuple[int, ...]) -> Method:
    """Return OAT with another codebook, of these FSQ levels."""
    if levels == (8, 5, 5, 5):
        return OAT  # itself, so that it is not trained a second time under another name
    name = ",".join(map(str, levels))
    return replace(
        OAT,
        name=f"OAT [{name}]",
        slug=f"oat-levels-{'-'.join(map(str, levels))}",
        options={"levels": levels},
        prefixes=(8,),
        same_steps_as="oat",
    )


def with_horizons(action_horizon: int, latent_horizon: int) -> Method:
    """Return OAT with chunks of other lengths, or with another number of tokens."""
    if (action_horizon, latent_horizon) == (32, 8):
        return OAT
    return replace(
        OAT,
        name=f"OAT H_a={action_horizon} H_l={latent_horizon}",
        slug=f"oat-{action_horizon}x{latent_horizon}",
        options={"latent_horizon": latent_horizon},
        prefixes=(latent_horizon,),
        action_horizon=action_horizon,
    )
