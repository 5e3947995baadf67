"""The section with the slider: chunks decoded from their first K tokens."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from oat.report.measured_tokenizers import Example
from oat.report.page_data import PageData
from oat.report.plots import Colours, plot_text
from oat.report.sections.section import Section


@dataclass(frozen=True)
class SliderTokenizer:
    """Hold a tokenizer as the page's JavaScript draws it."""

    name: str
    colour: str
    ordered: bool
    bits: float
    """Bits of one token."""
    dimensions: Sequence[str]
    motions: bool
    chunks: Sequence[Example]


@dataclass(frozen=True)
class RefinementSection(Section):
    """Show one chunk at a time, refined from token to token by a slider."""

    template: ClassVar[str] = "refinement.html"
    tokenizers: Sequence[SliderTokenizer] = ()

    def payload(self) -> dict[str, Any]:
        """Return every tokenizer with its example chunks."""
        return {"tokenizers": [asdict(tokenizer) for tokenizer in self.tokenizers]}


def refinement_section(data: PageData, colours: Colours) -> Section | None:
    """Show what the first K tokens of a few chunks decode to, for every tokenizer."""
    if not data.tokenizers:
        return None
    tokenizers = [
        SliderTokenizer(
            name=tokenizer.name,
            colour=colours[tokenizer.method],
            ordered=tokenizer.ordered,
            bits=math.log2(tokenizer.vocab_size),
            dimensions=[plot_text(name) for name in tokenizer.dimensions],
            motions=tokenizer.motions,
            chunks=tokenizer.examples,
        )
        for tokenizer in data.tokenizers
    ]
    return RefinementSection(
        "refinement",
        "Coarse to fine",
        "A held-out chunk and what its first K tokens decode to. Move the slider: every token adds detail to a whole "
        "motion.",
        tokenizers=tokenizers,
    )
