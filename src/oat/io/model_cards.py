"""The model card beside every checkpoint: what it is, from what and how it was made, how good it is, how to load it.

Cards are for people and for the Hugging Face Hub, and nothing reads them back: they may be edited. What a card says of
the training is in config.json, too, so that a checkpoint that is loaded and saved again has the same card.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CITATION = """@article{liu2026oat,
  title  = {{OAT}: Ordered Action Tokenization},
  author = {Liu, Chaoqi and Han, Xiaoshen and Gao, Jiawei and Zhao, Yue and Chen, Haonan and Du, Yilun},
  year   = {2026},
  url    = {https://ordered-action-tokenization.github.io/}
}"""

_MEANINGS = {
    "mse": "MSE in model space",
    "nll": "negative log-likelihood",
    "accuracy": "accuracy",
    "nll_chunk": "negative log-likelihood of a chunk",
    "undecodable": "share of chunks that do not decode",
    "tokens": "tokens per chunk",
    "score": "score, which decides what checkpoint is the best (smaller is better)",
}
_NUMBERED = re.compile(r"(\w+)_(\d+)")


@dataclass(frozen=True)
class ModelCard:
    """What a card says."""

    title: str
    about: str
    """What the model is, in a sentence or two."""
    load: str
    """Python that loads it from the path it calls DIRECTORY."""
    tags: tuple[str, ...]
    shapes: Mapping[str, str]
    ranges: Sequence[tuple[float, float, float, float]]
    """Each action dimension's lowest and highest value in fitting, its centre and its spread."""
    origin: Mapping[str, Any]
    """What config.json records of the data, the training and its measures."""
    bits: float | None = None
    """Bits per token, where measures are those of a tokenizer's prefixes."""
    library: str = "oat"
    """The Python package that loads it."""

    def render(self, weights_sha256: str) -> str:
        """The card as Markdown with the Hub's front matter."""
        front = [f"library_name: {self.library}", "pipeline_tag: robotics", "tags:", *(f"- {tag}" for tag in self.tags)]
        sections = {
            "How to load it": f"With this directory's path for DIRECTORY:\n\n```python\n{self.load.strip()}\n```",
            "Shapes": _table(("", ""), [*self.shapes.items(), ("SHA-256 of the weights", f"`{weights_sha256}`")]),
            "Data": self._data(),
            "Normalisation": self._normalization(),
            f"{'Measures' if self.bits is None else 'Rate and distortion'} on held-out data": self._measures(),
            "Training": self._training(),
            "Citation": f"```bibtex\n{CITATION}\n```",
        }
        begin = ["\n".join(["---", *front, "---"]), f"# {self.title}", self.about]
        return "\n\n".join([*begin, *(f"## {heading}\n\n{body}" for heading, body in sections.items())]) + "\n"

    def _data(self) -> str:
        names = ("data", "episodes", "frames", "tasks", "validation", "seed")
        labels = {"validation": "share held out", "seed": "seed of the split and the training"}
        known = [(labels.get(name, name), _shown(self.origin[name])) for name in names if name in self.origin]
        return _table(("", ""), known) if known else "Not recorded."

    def _normalization(self) -> str:
        kind = self.origin.get("normalization", "per dimension")
        rows = [(str(number), *map(_shown, row)) for number, row in enumerate(self.ranges)]
        about = "y = (x - centre) / spread; what lies outside the lowest and highest is taken for the nearest inside."
        return f"{kind}: {about}\n\n{_table(('dimension', 'lowest', 'highest', 'centre', 'spread'), rows)}"

    def _measures(self) -> str:
        measures: Mapping[str, float] = self.origin.get("measures", {})
        if not measures:
            return "Not recorded."
        matches = {name: _NUMBERED.fullmatch(name) for name in measures}
        numbered = [(match[1], int(match[2])) for match in matches.values() if match]
        parts = []
        if numbered:
            names, counts = list(dict.fromkeys(name for name, _ in numbered)), sorted({count for _, count in numbered})
            rate = () if self.bits is None else ("bits",)
            rows = []
            for count in counts:
                bits = () if self.bits is None else (f"{count * self.bits:.1f}",)
                rows.append((str(count), *bits, *(_shown(measures.get(f"{name}_{count}", "")) for name in names)))
            parts.append(_table(("tokens", *rate, *(_MEANINGS.get(name, name) for name in names)), rows))
        others = [(_MEANINGS.get(name, name), _shown(measures[name])) for name, match in matches.items() if not match]
        if others:
            parts.append(_table(("", ""), others))
        return "\n\n".join(parts)

    def _training(self) -> str:
        parts = []
        if "command" in self.origin:
            parts.append(f"Made by\n\n```\n{self.origin['command']}\n```")
        recipe = dict(self.origin.get("recipe") or {})
        if "step" in self.origin:
            recipe = {"steps taken": self.origin["step"], **recipe}
        if recipe:
            known = {name.replace("_", " "): _shown(value) for name, value in recipe.items() if value is not None}
            parts.append(_table(("", ""), list(known.items())))
        return "\n\n".join(parts) or "Not recorded."


def _shown(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, tuple | list):
        return ", ".join(map(_shown, value))
    return str(value)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)
