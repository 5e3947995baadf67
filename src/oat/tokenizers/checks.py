"""Checks of a tokenizer's inputs: each function returns tensors on its device, or raises what is wrong and where."""

import torch
from jaxtyping import Bool, Float, Int64
from torch import Tensor

from oat.errors import InvalidActions, InvalidObservation, InvalidOption, InvalidTokens, OatError
from oat.tokenizers.space import ActionSpace
from oat.tokenizers.tokens import Array, TokenLike, Tokens, as_tokens


def as_numbers(
    values: Array, name: str, wrong: type[OatError], device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return an array as a tensor; raise the error of the given type for one that holds no numbers, but objects."""
    try:
        return torch.as_tensor(values, dtype=dtype, device=device)
    except (TypeError, ValueError, RuntimeError) as error:
        found = getattr(values, "dtype", type(values).__name__)
        raise wrong(f"{name} must be numbers, got an array of {found}") from error


def check_actions(
    actions: Array, valid_mask: Array | None, space: ActionSpace, device: torch.device
) -> tuple[Float[Tensor, "batch time dim"], Bool[Tensor, "batch time"]]:
    """Return chunks and which of their steps are valid; raise `InvalidActions` for other shapes and for NaN."""
    chunks = as_numbers(actions, "actions", InvalidActions, device)
    expected = (space.action_horizon, space.action_dim)
    if chunks.ndim != 3 or tuple(chunks.shape[1:]) != expected:
        raise InvalidActions(f"actions must be (batch, {expected[0]}, {expected[1]}), got {tuple(chunks.shape)}")
    return chunks, check_steps(chunks, valid_mask)


def check_steps(chunks: Float[Tensor, "batch time dim"], valid_mask: Array | None) -> Bool[Tensor, "batch time"]:
    """Return which steps are valid; raise `InvalidActions` for numbers that are not finite, and for empty chunks."""
    if not bool(torch.isfinite(chunks).all()):
        row, step, dim = torch.nonzero(~torch.isfinite(chunks))[0].tolist()
        raise InvalidActions(f"actions[{row}, {step}, {dim}] is {float(chunks[row, step, dim])}")
    if valid_mask is None:
        return torch.ones(chunks.shape[:2], dtype=torch.bool, device=chunks.device)
    valid = as_numbers(valid_mask, "valid_mask", InvalidActions, chunks.device, torch.bool)
    if valid.shape != chunks.shape[:2]:
        raise InvalidActions(f"valid_mask must be {tuple(chunks.shape[:2])}, got {tuple(valid.shape)}")
    # Errors are means over valid steps; a chunk that begins after its episode's end has none.
    if not bool(valid[:, 0].all()):
        raise InvalidActions("every chunk needs at least its first step to be valid")
    return valid


def check_state(
    state: Array | None, batch: int, space: ActionSpace, device: torch.device
) -> Float[Tensor, "..."] | None:
    """Return the state that the transform refers to, or raise `InvalidObservation`; other transforms ignore it."""
    if state is None:
        return None
    given = as_numbers(state, "state", InvalidObservation, device)
    if space.transform.state_key is None:
        return given
    dim = space.state_dim
    if given.ndim != 2 or len(given) != batch or dim not in (None, given.shape[1]):
        raise InvalidObservation(f"state must be ({batch}, {dim or 'numbers'}), got {tuple(given.shape)}")
    if not bool(torch.isfinite(given).all()):
        row, place = torch.nonzero(~torch.isfinite(given))[0].tolist()
        raise InvalidObservation(f"state[{row}, {place}] is {float(given[row, place])}")
    return given


def check_tokens(tokens: TokenLike, vocab_size: int, device: torch.device) -> Tokens:
    """Return the tokens with zeros for padding, or raise `InvalidTokens` for ids outside the vocabulary."""
    known = as_tokens(tokens).to(device)
    wrong = known.real & ((known.ids < 0) | (known.ids >= vocab_size))
    if bool(wrong.any()):
        row, place = torch.nonzero(wrong)[0].tolist()
        found = int(known.ids[row, place])
        raise InvalidTokens(f"token {place} of row {row} is {found}; ids must be in 0…{vocab_size - 1}")
    # Padding may be any number, such as -100; as 0 it can be looked up in tables before it is masked.
    return Tokens(known.ids.where(known.real, 0), known.lengths)


def check_lengths(lengths: Int64[Tensor, " batch"], shortest: int, longest: int, kind: str) -> None:
    """Raise `InvalidTokens` for sequences that are shorter or longer than those that this kind decodes."""
    if len(lengths) and not (shortest <= int(lengths.min()) and int(lengths.max()) <= longest):
        allowed = str(longest) if shortest == longest else f"{shortest}…{longest}"
        raise InvalidTokens(f"{kind} decodes {allowed} tokens, got {int(lengths.min())}…{int(lengths.max())}")


def check_noise(
    noise: Array | None, batch: int, space: ActionSpace, device: torch.device, used: bool
) -> Float[Tensor, "batch time dim"] | None:
    """Return the noise that decoding starts from; raise `InvalidOption` for a wrong shape, or if it is not `used`."""
    if noise is None:
        return None
    given = as_numbers(noise, "noise", InvalidOption, device)
    expected = (batch, space.action_horizon, space.model_dim)
    if not used or given.shape != expected:
        allowed = f"must be {expected}" if used else "is not used by this tokenizer"
        raise InvalidOption(f"noise {allowed}, got {tuple(given.shape)}")
    return given
