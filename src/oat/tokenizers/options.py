"""Which options of `oat fit` mean something to which tokenizer."""

from dataclasses import fields

from oat.errors import refuse_unused
from oat.training.config import RecipeOptions, TokenizerOptions

_LEARNED = ("quest", "oat")
_ONLY = {
    "latent_horizon": ("oat",),
    "keep": ("oat",),
    "prefixes": ("oat",),
    "balance": ("oat",),
    "register_attention": ("oat",),
    "scale": ("fast",),
    "vocab_size": ("fast",),
    "bins": ("bin",),
}
"""Who uses an option; all others are for what is learned."""


def check_options(kind: str, options: TokenizerOptions | RecipeOptions) -> None:
    """Refuse those that are set although a tokenizer of this kind would be the same without them."""
    for field in fields(options):
        users = _ONLY.get(field.name, _LEARNED)
        if kind not in users:
            refuse_unused(kind, " and ".join(users), **{field.name: getattr(options, field.name)})
    if isinstance(options, TokenizerOptions) and options.keep == "full":
        # every chunk then has one prefix, the whole
        refuse_unused("--keep full", "nested dropout", prefixes=options.prefixes, balance=options.balance)
