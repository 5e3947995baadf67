"""Ways to decode that a study compares: each is what `oat eval` is told beside the policy."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class DecodingRun:
    """Describe one way to decode, as tables and directories call it."""

    label: str
    """Name in tables, behind the method's."""
    slug: str
    """Name in directories, behind the method's."""
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Options of `EvalConfig`."""
    needs_head: bool = False
    """Whether a stopping head is made for it first."""
    matched_to: str | None = None
    """Slug of the way whose numbers of tokens are drawn at random here."""
    film: bool = False
    """Whether a few episodes of the first training seed are filmed, to be looked at beside their tokens."""
