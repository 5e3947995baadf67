"""The exceptions a user can meet: each says what is wrong, where, and what is allowed."""

import difflib
from collections.abc import Iterable


class OatError(Exception):
    """A user's mistake or an outside failure, as opposed to a defect of ours; the CLI prints it as one line."""


class DatasetError(OatError):
    """Something is wrong with a data set on disk."""


class UnknownFormat(DatasetError):
    """The path is not a data set in any format that `open_dataset` reads."""


class UnsupportedVersion(DatasetError):
    """The format is known, but not in this version."""


class CorruptDataset(DatasetError):
    """A file is truncated, unreadable or contradicts the data set's own metadata."""


class MissingKey(DatasetError, KeyError):
    """A required array, column or feature is absent."""

    __str__ = Exception.__str__  # KeyError would print the message's repr


class InvalidEpisode(DatasetError):
    """An episode is empty, its arrays differ in length or dimension, or its numbers are not finite."""


class DatasetExists(DatasetError):
    """The output path is taken, and nothing on disk is ever overwritten unasked."""


class WriteFailed(OatError):
    """The disk is full or refuses; what existed before is unchanged."""


class TransformError(OatError):
    """An action transform is undefined for these dimensions."""


class InvalidActions(OatError):
    """Actions given to a tokenizer have the wrong shape or are not finite."""


class UnusualActions(UserWarning):
    """Chunks that a tokenizer reconstructs worse than nearly all that were held out when it was fitted."""


class NotFitted(OatError):
    """A tokenizer was asked to encode, decode or be saved before it was fitted."""


class InvalidTokens(OatError):
    """Token ids are outside the vocabulary, or too few or too many."""


class UndecodableTokens(InvalidTokens):
    """Valid token ids that do not decode to a chunk, which only tokenizers that are not total know."""


class InvalidObservation(OatError):
    """An observation given to a policy or a tokenizer lacks a key, or has the wrong shape, type or values."""


class CheckpointError(OatError):
    """A checkpoint is missing, damaged, or of another kind or version."""


class InvalidOption(OatError):
    """A value is outside what is allowed."""


class UnknownName(OatError):
    """A task, camera or feature by that name does not exist."""


class SimulatorError(OatError):
    """A simulator cannot do what was asked, such as rendering without graphics libraries."""


class WorkersFailed(OatError):
    """A worker process died, or a Ray cluster cannot do what was asked."""


class InvalidMessage(OatError):
    """A message over the network is not what the protocol allows."""


class PolicyServerError(OatError):
    """A policy server cannot be reached, or refused a request."""


class MissingExtra(OatError, ImportError):
    """An optional dependency is not installed."""


def unknown_name(kind: str, name: str, allowed: Iterable[str]) -> UnknownName:
    """Return the error for a name that is not in `allowed`, which names the close ones, or all when they are few."""
    options = sorted(allowed)
    close = difflib.get_close_matches(name, options, n=3, cutoff=0.5) or [o for o in options if name and name in o][:3]
    parts = [f"unknown {kind} {name!r}."]
    if close:
        parts.append(f"Did you mean {' or '.join(map(repr, close))}?")
    if not close or len(options) <= 12:
        shown = options if len(options) <= 60 else [*options[:60], "…"]
        parts.append(f"Available: {', '.join(shown) or 'none'}.")
    return UnknownName(" ".join(parts))


def refuse_unused(chosen: str, users: str, **options: object) -> None:
    """Raise `InvalidOption` for an option that is set although it means nothing to what was chosen."""
    for name, value in options.items():
        if value is not None and value != ():
            flag = name.replace("_", "-")
            raise InvalidOption(f"--{flag} means nothing to {chosen}, it is for {users}: leave it out")
