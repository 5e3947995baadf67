"""Instructions to vectors by a Hugging Face text encoder."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from oat.errors import InvalidOption
from oat.io.extras import import_extra


def embed_texts(name: str, texts: Sequence[str]) -> Float[Tensor, "texts dim"]:
    """Return the pooled outputs of the encoder with this name on the hub or in this local directory."""
    return _embed(name, tuple(texts)).clone()


@lru_cache(maxsize=16)
@torch.no_grad()
def _embed(name: str, texts: tuple[str, ...]) -> Float[Tensor, "texts dim"]:
    """Return the same; it is kept, because loading the encoder takes much longer than using it."""
    transformers = import_extra("transformers", "hf")
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        model = transformers.AutoModel.from_pretrained(name).eval()
    except (OSError, ValueError) as error:
        raise InvalidOption(f"cannot load the text encoder {name!r}: {error}") from error
    encoder = getattr(model, "text_model", model.get_encoder() if model.config.is_encoder_decoder else model)
    inputs = tokenizer(list(texts), padding=True, truncation=True, return_tensors="pt")
    outputs = encoder(**inputs)
    pooled = getattr(outputs, "pooler_output", None)
    if pooled is not None:
        return pooled.float()
    mask = inputs["attention_mask"][..., None]
    return ((outputs.last_hidden_state * mask).sum(1) / mask.sum(1)).float()
