"""A study's models, and the demonstrations that none of them was trained on."""

import json
from collections.abc import Iterator

import numpy as np
import torch

from oat.data.chunks import Batch, WindowConfig, Windows
from oat.data.episodes import Episodes, open_dataset
from oat.data.shuffle import Permutation, derive_key
from oat.data.splits import split_episodes
from oat.experiments.study.methods import Method
from oat.experiments.study.study import Study
from oat.io.checkpoints import CONFIG_FILE, find_checkpoint
from oat.io.training_record import Measures, TrainingRecord, stored_record
from oat.policies import Policy, load_policy
from oat.tokenizers import BaseTokenizer
from oat.tokenizers.loading import load_tokenizer
from oat.tokenizers.measures import ChunkBatch, draw_chunks
from oat.training.tokenizers import split_windows

_BLOCK = 64  # windows that a policy sees at a time


def find_tokenizer(study: Study, method: Method, seed: int = 0) -> BaseTokenizer | None:
    """Return the method's tokenizer, where it has been fitted."""
    name = method.run("tokenizers", seed)
    return load_tokenizer(study.folder / name) if study.finished(name) else None


def find_policy(study: Study, method: Method, seed: int = 0) -> Policy | None:
    """Return the method's policy, where it has been trained."""
    name = method.run("policies", seed)
    return load_policy(study.folder / name) if study.finished(name) else None


def read_measures(study: Study, name: str) -> Measures:
    """Return the held-out measures of the best checkpoint of a run; they are empty if it is not finished."""
    if not study.finished(name):
        return Measures()
    described = json.loads((find_checkpoint(study.folder / name) / CONFIG_FILE).read_text("utf-8"))
    return stored_record(described).measures or Measures()


def held_out_episodes(study: Study, record: TrainingRecord) -> Episodes:
    """Return the study's demonstrations that a model with this record was not trained on."""
    episodes = open_dataset(study.data)
    _, held_out = split_episodes(episodes, *record.split())
    return episodes.select(held_out)


def held_out_chunks(study: Study, tokenizer: BaseTokenizer) -> ChunkBatch:
    """Return held-out chunks, as many of them as figures of this scale are made from."""
    _, held_out = split_windows(open_dataset(study.data), tokenizer.space, *tokenizer.training_record.split())
    return draw_chunks(held_out, tokenizer, study.scale.chunks)


def held_out_windows(study: Study, policy: Policy) -> Windows:
    """Return the windows of the episodes that a policy was not trained on, as it sees them."""
    seen = policy.observed
    key = policy.space.transform.state_key
    observed = (*seen.keys, *(() if key in (None, *seen.keys) else (str(key),)))
    window = WindowConfig(policy.space.action_horizon, seen.obs_horizon, observed)
    return Windows(held_out_episodes(study, policy.training_record), window)


def held_out_batches(study: Study, windows: Windows) -> Iterator[Batch]:
    """Yield held-out windows in a fixed random order, a few at a time, as many as figures of this scale need."""
    count = min(study.scale.chunks, len(windows))
    chosen = Permutation(len(windows), derive_key(0))(np.arange(count))
    return (windows[chosen[first : first + _BLOCK]] for first in range(0, count, _BLOCK))


def episode_numbers(windows: Windows, batch: Batch) -> list[int]:
    """Return the episode of each example: those of one episode are alike, and so are not independent."""
    return np.searchsorted(np.cumsum(windows.episodes.lengths), batch.windows, side="right").tolist()


def generator() -> torch.Generator:
    """Return the random numbers of a figure: the same whenever it is drawn."""
    return torch.Generator().manual_seed(0)
