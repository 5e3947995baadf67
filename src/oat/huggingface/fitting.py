"""Fitting OAT to chunks in memory, with PyTorch alone.

`oat fit` reads data sets, trains on several processes and resumes (`oat.training.loop`), which takes packages that a
processor must not need. Model, objective, optimizers, schedule and averaging are the same here; the loop is plainer.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from oat.data.normalize import Normalizer
from oat.data.statistics import RunningStatistics
from oat.errors import InvalidActions
from oat.io.checkpoints import config_to_json
from oat.io.extras import import_extra
from oat.io.training_record import Measures, TrainingRecord
from oat.tokenizers.evaluation import Chunks, distortions
from oat.tokenizers.oat import OATConfig, OATTokenizer
from oat.tokenizers.tokenizer import ActionSpace
from oat.training.config import TrainConfig
from oat.training.loop import TrainingFailed
from oat.training.optimizers import make_optimizers
from oat.training.updates import Updates

import_extra("transformers", "hf")
from transformers.utils.logging import tqdm  # noqa: E402

_HELD_OUT = 0.1
_OF_OTHER_LOOPS = ("compile", "validate_every", "workers", "wandb")


def fit_chunks(
    actions: Float[Tensor, "chunks time dim"], config: OATConfig, recipe: TrainConfig, device: str
) -> OATTokenizer:
    """A tokenizer trained on all but the last tenth of the chunks, on which its error is measured.

    The last ones, rather than any: chunks may overlap their neighbours.
    """
    kept = len(actions) - math.ceil(_HELD_OUT * len(actions))
    if kept < 1:
        raise InvalidActions(f"at least 2 chunks are needed, one of them to measure the error; got {len(actions)}")
    taught, held_out = actions[:kept], actions[kept:]
    statistics = RunningStatistics(taught.shape[0] * taught.shape[1])
    statistics.update(taught.flatten(0, 1).numpy())
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        untrained = OATTokenizer(ActionSpace(*taught.shape[1:]), config)
    untrained.normalizer = Normalizer.from_statistics(statistics)
    tokenizer = _train(untrained.to(device), taught, recipe)
    errors = distortions(tokenizer, Chunks(held_out, torch.ones(held_out.shape[:2], dtype=torch.bool), None)).mean(0)
    if not bool(torch.isfinite(errors).all()):
        raise TrainingFailed(f"the error is not finite after {recipe.steps} steps")
    tokenizer.training_record = TrainingRecord(
        data=f"{len(actions):,} chunks given to OATProcessor.fit",
        validation=_HELD_OUT,
        seed=recipe.seed,
        normalization="min_max",
        recipe={name: value for name, value in config_to_json(recipe).items() if name not in _OF_OTHER_LOOPS},
        step=recipe.steps,
        measures=Measures(mse_of_prefix=dict(enumerate(errors.tolist(), start=1))),
    )
    return tokenizer


def _train(tokenizer: OATTokenizer, actions: Float[Tensor, "chunks time dim"], recipe: TrainConfig) -> OATTokenizer:
    """The average of the weights along the way, on the CPU."""
    device, generator = tokenizer.device, torch.Generator().manual_seed(recipe.seed)
    wanted = tokenizer.to_model_space(actions.to(device))
    valid = torch.ones(recipe.batch_size, actions.shape[1], dtype=torch.bool, device=device)
    updates = Updates(tokenizer, make_optimizers(tokenizer, {}, recipe), recipe)
    tokenizer.train()
    for _ in tqdm(range(recipe.steps), desc="fitting OAT"):
        chosen = torch.randint(len(wanted), (recipe.batch_size,), generator=generator).to(device)
        with torch.autocast(device.type, torch.bfloat16, enabled=recipe.precision == "bf16"):
            loss = tokenizer(wanted[chosen], valid, generator).loss
        torch.autograd.backward(loss)
        updates.apply()
    averaged = updates.average.module
    assert isinstance(averaged, OATTokenizer)
    return averaged.cpu().eval()
