"""Measure how many tokens of a study's methods change when held-out chunks hardly do."""

from oat.data.episodes import open_dataset
from oat.experiments.study.held_out import find_tokenizer, generator
from oat.experiments.study.methods import Method
from oat.experiments.study.study import Study
from oat.tokenizers.stability import Stability, draw_neighbours, measure_stability
from oat.training.tokenizers import split_windows


def find_stability(study: Study, method: Method, seed: int) -> Stability | None:
    """Return the stability of the method's tokenizer, where it has one that is here."""
    tokenizer = find_tokenizer(study, method, seed)
    if tokenizer is None:
        return None
    _, held_out = split_windows(open_dataset(study.data), tokenizer.space, *tokenizer.training_record.split())
    return measure_stability(tokenizer, *draw_neighbours(held_out, tokenizer, study.scale.chunks), generator())
