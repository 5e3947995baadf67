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

from oat.errors import InvalidActions, InvalidOption, InvalidTokens
from oat.io.checkpoints import CONFIG_FILE, WEIGHTS_FILE
from oat.io.extras import import_extra
from oat.nn.fsq import levels_within
from oat.tokenizers.oat import PROCESSOR_CONFIG, OATTokenizer
from oat.tokenizers.tokens import Array
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

    def __init__(self, oat: OATTokenizer) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.oat = oat.eval()

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
        """Return the tokens of chunks (batch, time, dim), or of one chunk (time, dim), as `OATTokenizer.encode`."""
        actions = torch.as_tensor(action_chunk)
        return self.oat.encode(actions[None] if actions.ndim == 2 else actions, valid_mask, state, max_error).tolist()

    def decode(
        self,
        tokens: Sequence[Sequence[int]] | Array,
        *,
        time_horizon: int | None = None,
        action_dim: int | None = None,
        state: Array | None = None,
    ) -> np.ndarray:
        """Return chunks (batch, time, dim), or their first `time_horizon` actions.

        Every list of one id or more decodes. A chunk has `max_tokens` ids; what a model wrote after them is left out.
        """
        if action_dim not in (None, self.action_dim):
            raise InvalidOption(f"these tokens are of {self.action_dim}-D actions, not {action_dim}-D ones")
        rows = [row.tolist() if isinstance(row, Array) else row for row in tokens]
        if not all(isinstance(row, Sequence) for row in rows):
            raise InvalidTokens("tokens must be a list of ids for every chunk: decode([ids]) for a single one")
        return self.oat.decode([row[: self.max_tokens] for row in rows], time_horizon, state).cpu().numpy()

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
    ) -> "OATProcessor":
        """Return a new processor, trained on chunks (time, dim) of one shape, in action units; it takes minutes.

        `vocab_size` is the largest that it may have: 1024 gives the paper's 1000 ids. FAST's `scale` has no meaning
        here: how fine a chunk is depends on the number of its tokens. The rest is as in `OATTokenizer.fit`.
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
        tokenizer = OATTokenizer.fit(torch.stack(chunks), levels=levels_within(vocab_size), **how)
        record = tokenizer.training_record
        options = f"vocab_size={vocab_size}, preset={preset!r}, steps={record.step}, seed={seed}"
        # The card should show the call that was made, and not the one that it was passed on as.
        tokenizer.training_record = replace(record, command=f"OATProcessor.fit(action_data, {options})")
        return cls(tokenizer)

    @classmethod
    def from_pretrained(cls, pretrained_model_name_or_path: str | Path, **options: Any) -> "OATProcessor":  # type: ignore[override]
        """Return the processor of a directory that `save_pretrained` wrote, or of the Hub."""
        directory = Path(pretrained_model_name_or_path).expanduser()
        if not directory.is_dir():
            chosen = {name: options[name] for name in _DOWNLOAD_OPTIONS if name in options}
            # Only what loading reads: not the card, nor another copy of this file.
            for file in (CONFIG_FILE, WEIGHTS_FILE):
                directory = Path(hf_hub_download(str(pretrained_model_name_or_path), file, **chosen)).parent
        return cls(OATTokenizer.load(directory))

    def save_pretrained(self, save_directory: str | Path) -> None:  # type: ignore[override]
        """Write the directory that `AutoProcessor` loads; it appears when it is complete."""
        self.oat.save_pretrained(save_directory)

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
