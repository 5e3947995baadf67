"""Run `oat fit`: fit a tokenizer to a data set, as a run that can be resumed, or at once where nothing is trained."""

from dataclasses import replace

from oat.data import transforms
from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import Episodes, open_dataset
from oat.data.normalize import Normalizer, action_statistics
from oat.data.splits import split_episodes
from oat.data.transforms import ActionTransform
from oat.errors import DatasetExists
from oat.io.checkpoints import checkpoint_kind
from oat.io.options import options_of, value_at
from oat.tokenizers import TOKENIZERS
from oat.tokenizers.config import TokenizerConfig
from oat.tokenizers.measures import draw_chunks
from oat.tokenizers.space import ActionSpace
from oat.training.config import FitConfig
from oat.training.fitting import TokenizerTraining, measure_at_once, prepare
from oat.training.loop import train
from oat.training.record import begin_record

_VALIDATION_CHUNKS = 1024  # so that validation takes seconds, however large the data set is


def split_windows(episodes: Episodes, space: ActionSpace, validation: float, seed: int) -> tuple[Windows, Windows]:
    """Return training and held-out windows, with the state where the space's transform refers to it."""
    key = space.transform.state_key
    window = WindowConfig(space.action_horizon, 1, () if key is None else (key,))
    train_ids, held_out = split_episodes(episodes, validation, seed)
    return Windows(episodes.select(train_ids), window), Windows(episodes.select(held_out), window)


def action_space(episodes: Episodes, action_horizon: int, transform: ActionTransform) -> ActionSpace:
    """Return the space of a data set's chunks, with the size of the state where the transform refers to it."""
    key = transform.state_key
    state_dim = episodes.observation(key).shape[1] if key is not None and key in episodes.observations else None
    return ActionSpace(action_horizon, episodes.action_dim, transform, state_dim)


def fit_tokenizer(config: FitConfig) -> None:
    """Fit a tokenizer and save it: as a run's directory if it is trained, else as a checkpoint."""
    model = _settled(config)
    episodes = open_dataset(config.data)
    space = action_space(episodes, config.action_horizon, transforms.parse(config.transform))
    windows, held_out = split_windows(episodes, space, config.validation, config.seed)
    # From the training windows only: what is held out must not influence anything that is measured on it.
    normalizer = Normalizer.from_statistics(action_statistics(windows, space.transform), config.normalization)
    if config.recipe is None and checkpoint_kind(config.out) is not None and not config.resume:
        raise DatasetExists(f"{config.out} holds a tokenizer; --resume fits it anew, another --out keeps it")
    tokenizer = prepare(TOKENIZERS[config.tokenizer], model, windows, space, normalizer, config.seed)
    tokenizer.training_record = replace(begin_record("fit", config, episodes), normalization=config.normalization)
    chunks = draw_chunks(held_out, tokenizer, _VALIDATION_CHUNKS)
    if config.recipe is not None:
        recipe = replace(config.recipe, seed=config.seed)
        train(TokenizerTraining(tokenizer, chunks), windows, recipe, config.out, config.resume)
        return
    tokenizer.training_record = replace(tokenizer.training_record, measures=measure_at_once(tokenizer, chunks))
    tokenizer.save(config.out)


def _settled(config: FitConfig) -> TokenizerConfig:
    """Return the model's configuration with what follows from the options that differ from the preset's."""
    # The command line does not tell which options were typed: those that differ from the preset stand for them.
    usual = config.usual().model
    changed = [name for name, path in options_of(usual) if value_at(usual, path) != value_at(config.model, path)]
    return config.model.settled(changed)
