"""The model card beside every checkpoint: what it is, from what and how it was made, how good it is, how to load it.

Cards are for people and for the Hugging Face Hub, and nothing reads them back: they may be edited. What a card says of
the training is in config.json, too, so that a checkpoint that is loaded and saved again has the same card.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from oat.io.training_record import Measures, TrainingRecord

CITATION = """@article{liu2026oat,
  title  = {{OAT}: Ordered Action Tokenization},
  author = {Liu, Chaoqi and Han, Xiaoshen and Gao, Jiawei and Zhao, Yue and Chen, Haonan and Du, Yilun},
  year   = {2026},
  url    = {https://ordered-action-tokenization.github.io/}
}"""


@dataclass(frozen=True)
class ModelCard:
    """Hold everything that the card of a checkpoint says."""

    title: str
    about: str
    """Description of the model, in a sentence or two."""
    load: str
    """Python that loads the model from a path, for which it says DIRECTORY."""
    tags: tuple[str, ...]
    shapes: Mapping[str, str]
    ranges: Sequence[tuple[float, float, float, float]]
    """Each action dimension's lowest and highest value in fitting, its centre and its spread."""
    record: TrainingRecord
    """Record of the data, the training and its measures, as config.json holds it."""
    bits: float | None = None
    """Bits per token, where measures are those of a tokenizer's prefixes."""
    library: str = "oat"
    """The Python package that loads it."""

    def render(self, weights_sha256: str) -> str:
        """Return the card as Markdown, with the front matter that the Hub reads."""
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
        record = self.record
        known = {
            "data": record.data,
            "episodes": record.episodes,
            "frames": record.frames,
            "tasks": record.tasks,
            "share held out": record.validation,
            "seed of the split and the training": record.seed,
        }
        rows = [(label, _shown(value)) for label, value in known.items() if value is not None]
        return _table(("", ""), rows) if rows else "Not recorded."

    def _normalization(self) -> str:
        kind = self.record.normalization or "per dimension"
        rows = [(str(number), *map(_shown, row)) for number, row in enumerate(self.ranges)]
        about = "y = (x - centre) / spread; what lies outside the lowest and highest is taken for the nearest inside."
        return f"{kind}: {about}\n\n{_table(('dimension', 'lowest', 'highest', 'centre', 'spread'), rows)}"

    def _measures(self) -> str:
        measures = self.record.measures
        if measures is None:
            return "Not recorded."
        parts = [self._by_tokens(measures), _single_measures(measures)]
        return "\n\n".join(part for part in parts if part) or "Not recorded."

    def _by_tokens(self, measures: Measures) -> str:
        """Return the table of what was measured for one token, for two, and so on; nothing where nothing was."""
        columns = {
            "negative log-likelihood": measures.nll_of_token,
            "accuracy": measures.accuracy_of_token,
            "MSE in model space": measures.mse_of_prefix,
        }
        columns = {name: values for name, values in columns.items() if values}
        rows = []
        for tokens in sorted({tokens for values in columns.values() for tokens in values}):
            rate = () if self.bits is None else (f"{tokens * self.bits:.1f}",)
            rows.append((str(tokens), *rate, *(_shown(values.get(tokens, "")) for values in columns.values())))
        header = ("tokens", *(() if self.bits is None else ("bits",)), *columns)
        return _table(header, rows) if rows else ""

    def _training(self) -> str:
        parts = []
        if self.record.command is not None:
            parts.append(f"Made by\n\n```\n{self.record.command}\n```")
        recipe = dict(self.record.recipe or {})
        if self.record.step is not None:
            recipe = {"steps taken": self.record.step, **recipe}
        if recipe:
            known = {name.replace("_", " "): _shown(value) for name, value in recipe.items() if value is not None}
            parts.append(_table(("", ""), list(known.items())))
        return "\n\n".join(parts) or "Not recorded."


def _single_measures(measures: Measures) -> str:
    """Return the table of measures that are one number each; nothing where there are none."""
    known = {
        "score, which decides what checkpoint is the best (smaller is better)": measures.score,
        "tokens per chunk": measures.tokens,
        "MSE in model space": measures.mse,
        "MSE that 99 % of the chunks stay below": measures.usual_error,
        "negative log-likelihood of a chunk": measures.nll_of_chunk,
        "share of chunks that do not decode": measures.undecodable,
        **measures.others,
    }
    rows = [(label, _shown(value)) for label, value in known.items() if value is not None]
    return _table(("", ""), rows) if rows else ""


def _shown(value: object) -> str:
    """Return a value as a cell of the card: rounded, or with commas between thousands."""
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
