"""OAT as a Hugging Face processor that is called as FAST's (https://huggingface.co/physical-intelligence/fast).

`OATTokenizer.save_pretrained` writes it with all it needs into one file (`standalone.py`), so that
`AutoProcessor.from_pretrained(directory, trust_remote_code=True)` loads it where `oat` is not installed.
"""

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from oat.errors import InvalidActions, InvalidOption, InvalidTokens
from oat.huggingface.input_ranges import InputRanges
from oat.huggingface.written_tokens import FALLBACKS, explain_missing, leading_tokens
from oat.io.checkpoints import CONFIG_FILE, WEIGHTS_FILE
from oat.io.extras import import_extra
from oat.nn.fsq import levels_within
from oat.tokenizers.checks import check_actions, check_state
from oat.tokenizers.oat import PROCESSOR_CONFIG, OATTokenizer
from oat.tokenizers.tokens import Array, Tokens
from oat.tokenizers.tolerance import MaxError

# Before the imports that need it: where it is missing, the error says what to install.
import_extra("transformers", "hf")
from huggingface_hub import HfApi, hf_hub_download  # noqa: E402
from transformers.processing_utils import ProcessorMixin  # noqa: E402

_DOWNLOAD_OPTIONS = ("revision", "token", "cache_dir", "force_download", "local_files_only")


class OATProcessor(ProcessorMixin):
    """Turn chunks in action units into ordered tokens and back; every prefix decodes.

    It can stand wherever FAST's processor is called; `oat` is the tokenizer inside.
    """

    attributes: ClassVar[list[str]] = []  # none of transformers' own; before version 5 it looks here

    def __init__(self, oat: OATTokenizer, fallback: str = "hold") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        if fallback not in FALLBACKS:
            raise InvalidOption(f"fallback must be one of {', '.join(FALLBACKS)}, got {fallback!r}")
        self.oat = oat.eval()
        self.fallback = fallback
        """What stands for a chunk of which no token was written."""
        self.malformed = 0
        """How many chunks were asked for of which no token was written."""
        self._ranges = InputRanges(self.oat)

    def __len__(self) -> int:
        return self.vocab_size

    @property
    def vocab_size(self) -> int:
        """Return how many token ids there are."""
        return self.oat.vocab_size

    @property
    def max_tokens(self) -> int:
        """Return the number of tokens of a whole chunk."""
        return self.oat.max_tokens

    @property
    def time_horizon(self) -> int:
        """Return the number of actions in a chunk, under FAST's name for it."""
        return self.oat.action_horizon

    @property
    def action_dim(self) -> int:
        """Return the number of values in an action."""
        return self.oat.action_dim

    def __call__(
        self,
        action_chunk: Array,
        *,
        valid_mask: Array | None = None,
        state: Array | None = None,
        max_error: MaxError | float | None = None,
    ) -> list[list[int]]:
        """Return the tokens of chunks (batch, time, dim), or of one chunk (time, dim), as `OATTokenizer.encode`.

        Chunks in other units than those it was fitted to are told by a warning, once.
        """
        given = torch.as_tensor(action_chunk)
        actions, valid = check_actions(
            given[None] if given.ndim == 2 else given, valid_mask, self.oat.space, self.oat.device
        )
        known = check_state(state, len(actions), self.oat.space, self.oat.device)
        self._ranges.look(actions, known, stacklevel=2)
        return self.oat.encode(actions, valid, known, max_error).tolist()

    def decode(
        self,
        tokens: Sequence[Sequence[int]] | Array,
        time_horizon: int | None = None,
        action_dim: int | None = None,
        *,
        state: Array | None = None,
    ) -> np.ndarray:
        """Return chunks (batch, time, dim), or their first `time_horizon` actions, for whatever a model wrote.

        Of each row the ids before the first that is no action token are decoded, up to `max_tokens`. Where none is
        left, `fallback` says what stands for the chunk, and `malformed` counts it.
        """
        self._check_shape(time_horizon, action_dim)
        written = leading_tokens(tokens, self.vocab_size, self.max_tokens)
        missing = written.lengths == 0
        if bool(missing.any()):
            self._note_malformed(tokens, missing)
        # A row without tokens is decoded from any, and then replaced.
        ids = written.ids if written.ids.shape[1] else written.ids.new_zeros(len(written), 1)
        actions = self.oat.decode(Tokens(ids, written.lengths.clamp_min(1)), time_horizon, state)
        return torch.where(missing[:, None, None], self._stand_in(actions, state), actions).cpu().numpy()

    def batch_decode(self, sequences: Sequence[Sequence[int]] | Array, *arguments: Any, **options: Any) -> np.ndarray:
        """Return chunks as `decode` does, which takes batches."""
        return self.decode(sequences, *arguments, **options)

    def _check_shape(self, time_horizon: int | None, action_dim: int | None) -> None:
        """Raise `InvalidOption` where chunks of another dimension, or longer ones, are asked for."""
        time = self.time_horizon if time_horizon is None else time_horizon
        dim = self.action_dim if action_dim is None else action_dim
        if not 1 <= time <= self.time_horizon or dim != self.action_dim:
            held = f"{self.time_horizon} × {self.action_dim}"
            raise InvalidOption(
                f"these tokens decode to chunks of {held} (time_horizon × action_dim), {time} × {dim} were asked for: "
                "the dimension must be equal, and the horizon at most the tokenizer's"
            )

    def _note_malformed(self, tokens: Sequence[Sequence[int]] | Array, missing: Tensor) -> None:
        """Count rows without action tokens; warn of the first, or raise `InvalidTokens` if that is the fallback."""
        reason = explain_missing(tokens, missing, self.vocab_size)
        first = self.malformed == 0
        self.malformed += int(missing.sum())
        if self.fallback == "raise":
            raise InvalidTokens(reason)
        if first:
            instead = "the mean chunk stands" if self.fallback == "hold" else "zeros stand"
            warnings.warn(f"{reason}; {instead} for it, and `malformed` counts how often", stacklevel=3)

    def _stand_in(self, actions: Tensor, state: Array | None) -> Tensor:
        """Return what stands for chunks of which no token was written."""
        if self.fallback != "hold":
            return torch.zeros_like(actions)
        known = check_state(state, len(actions), self.oat.space, self.oat.device)
        mean = self.oat.mean_chunk[: actions.shape[1]].expand(len(actions), -1, -1)
        return self.oat.space.to_actions(mean, self.oat.normalizer, known)

    @classmethod
    def fit(
        cls,
        action_data: Sequence[Array] | Array,
        scale: float | None = None,
        vocab_size: int = 1024,
        *,
        time_horizon: int | None = None,
        action_dim: int | None = None,
        preset: str = "cpu",
        steps: int | None = None,
        minutes: float | None = None,
        seed: int = 0,
        device: str = "cpu",
        normalized: bool = False,
    ) -> "OATProcessor":
        """Return a new processor, trained on chunks (time, dim) of one shape; it takes minutes.

        Chunks come and go in the units of these. With `normalized` they were normalised before, as openpi does, and no
        other normalisation is added. `vocab_size` is the largest that it may have: 1024 gives the paper's 1000 ids.
        FAST's `scale` has no meaning here: how fine a chunk is depends on the number of its tokens. The rest is as in
        `OATTokenizer.fit`.
        """
        if scale is not None:
            warnings.warn("OAT has no scale; it is ignored. More tokens are finer.", stacklevel=2)
        chunks = [torch.as_tensor(chunk, dtype=torch.float32).cpu() for chunk in action_data]
        shapes = {tuple(chunk.shape) for chunk in chunks}
        if len(shapes) != 1 or any(len(shape) != 2 for shape in shapes):
            raise InvalidActions(f"all chunks must be (time, dim) of one shape, got {sorted(shapes) or 'none'}")
        time, dim = shapes.pop()
        if time_horizon not in (None, time) or action_dim not in (None, dim):
            raise InvalidActions(f"the chunks are {time} × {dim}, not {time_horizon} × {action_dim}")
        how: dict[str, Any] = {"preset": preset, "steps": steps, "minutes": minutes, "seed": seed, "device": device}
        if normalized:
            how["normalization"] = "none"
        tokenizer = OATTokenizer.fit(torch.stack(chunks), levels=levels_within(vocab_size), **how)
        tokenizer.space = replace(tokenizer.space, inputs="normalized" if normalized else "actions")
        record = tokenizer.training_record
        options = f"vocab_size={vocab_size}, preset={preset!r}, steps={record.step}, seed={seed}"
        options += ", normalized=True" if normalized else ""
        # The card should show the call that was made, and not the one that it was passed on as.
        tokenizer.training_record = replace(record, command=f"OATProcessor.fit(action_data, {options})")
        return cls(tokenizer)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> "OATProcessor":  # type: ignore[override]
        """Return the processor of a directory that `save_pretrained` wrote, or of the Hub; `fallback` is an option."""
        directory = Path(pretrained_model_name_or_path).expanduser()
        if not directory.is_dir():
            chosen = {name: options[name] for name in _DOWNLOAD_OPTIONS if name in options}
            # Only what loading reads: not the card, nor another copy of this file.
            for file in (CONFIG_FILE, WEIGHTS_FILE):
                directory = Path(hf_hub_download(str(pretrained_model_name_or_path), file, **chosen)).parent
        return cls(OATTokenizer.load(directory), options.get("fallback", "hold"))

    def save_pretrained(self, save_directory: str | Path, *, inputs: str = "actions") -> None:  # type: ignore[override]
        """Write the directory that `AutoProcessor` loads, as `OATTokenizer.save_pretrained`."""
        self.oat.save_pretrained(save_directory, inputs)

    def push_to_hub(  # type: ignore[override]
        self,
        repo_id: str,
        *,
        commit_message: str = "Upload OAT processor",
        private: bool | None = None,
        token: str | bool | None = None,
        revision: str | None = None,
        create_pr: bool = False,
    ) -> str:
        """Upload what `save_pretrained` writes; transformers' own method would put another model card in its place."""
        api = HfApi(token=token)
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        with TemporaryDirectory() as folder:
            self.save_pretrained(Path(folder) / "processor")
            return api.upload_folder(
                repo_id=repo_id,
                folder_path=Path(folder) / "processor",
                commit_message=commit_message,
                revision=revision,
                create_pr=create_pr,
            )

    def to_dict(self) -> dict[str, Any]:
        """Return what processor_config.json holds; the rest is in config.json and model.safetensors."""
        return dict(PROCESSOR_CONFIG)
