"""The state from which a run resumes: tensors as safetensors, everything else as JSON, nothing pickled."""

import hashlib
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from oat.errors import CheckpointError

STATE_FILE = "training_state.json"
TENSORS_FILE = "training_state.safetensors"
_PICKLED_FILE = "training_state.pt"  # of versions before this format

OptimizerState = Mapping[int, Mapping[str, Tensor]]
"""The tensors that an optimizer keeps, by the number of the parameter and their name."""


@dataclass(frozen=True)
class TrainingState:
    """Hold all that a run needs to go on; random numbers follow from the step, and options from the recipe."""

    started_with: Mapping[str, Any]
    step: int
    best: float
    model: Mapping[str, Tensor]
    average: Mapping[str, Tensor]
    optimizers: Sequence[OptimizerState]

    def write(self, folder: Path) -> None:
        """Write the state's two files into an existing directory."""
        tensors = {f"model/{name}": tensor for name, tensor in self.model.items()}
        tensors |= {f"average/{name}": tensor for name, tensor in self.average.items()}
        for number, optimizer in enumerate(self.optimizers):
            for parameter, kept in optimizer.items():
                tensors |= {f"optimizers/{number}/{parameter}/{name}": tensor for name, tensor in kept.items()}
        # Copies: parameters may share their memory, which safetensors refuses to write.
        data = save_tensors({name: tensor.detach().cpu().clone().contiguous() for name, tensor in tensors.items()})
        described = {
            "started_with": dict(self.started_with),
            "step": self.step,
            "best": self.best if math.isfinite(self.best) else None,
            "optimizers": len(self.optimizers),
            "tensors_sha256": hashlib.sha256(data).hexdigest(),
        }
        (folder / TENSORS_FILE).write_bytes(data)
        (folder / STATE_FILE).write_text(json.dumps(described, indent=1, ensure_ascii=False), "utf-8")

    @classmethod
    def read(cls, folder: Path) -> "TrainingState":
        """Read the state in a directory; raise `CheckpointError` if it is missing, damaged or of an older version."""
        if (folder / _PICKLED_FILE).exists() and not (folder / STATE_FILE).exists():
            raise CheckpointError(
                f"{folder / _PICKLED_FILE} is a pickle of an older version, and pickles are not opened: its "
                "checkpoints can be used, but to resume the run take the version that "
                "began it, or begin anew with another --out"
            )
        try:
            described = json.loads((folder / STATE_FILE).read_text("utf-8"))
            data = (folder / TENSORS_FILE).read_bytes()
            if hashlib.sha256(data).hexdigest() != described["tensors_sha256"]:
                raise CheckpointError(f"{folder / TENSORS_FILE}: cannot resume from it (damaged or exchanged)")
            tensors = load_tensors(data)
            return cls(
                started_with=dict(described["started_with"]),
                step=int(described["step"]),
                best=math.inf if described["best"] is None else float(described["best"]),
                model=_below("model/", tensors),
                average=_below("average/", tensors),
                optimizers=_optimizers(_below("optimizers/", tensors), int(described["optimizers"])),
            )
        except (OSError, ValueError, KeyError, TypeError, IndexError, OverflowError, SafetensorError) as error:
            raise CheckpointError(f"{folder / STATE_FILE}: cannot resume from it ({error})") from error


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> OptimizerState:
    """Return the tensors that an optimizer keeps; its options are the recipe's and need no keeping."""
    state: OptimizerState = optimizer.state_dict()["state"]
    return state


def restore_optimizer(optimizer: torch.optim.Optimizer, kept: OptimizerState) -> None:
    """Give an optimizer the tensors that another one kept; raise `ValueError` unless they fit its parameters."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, tensors in kept.items():
        if not 0 <= number < len(parameters):
            raise ValueError(f"the optimizer has no parameter {number}")
        shapes = (parameters[number].shape, torch.Size())
        wrong = [name for name, tensor in tensors.items() if tensor.shape not in shapes]
        if wrong:
            raise ValueError(f"{', '.join(wrong)} of parameter {number} must have the shape {tuple(shapes[0])}")
    groups = optimizer.state_dict()["param_groups"]
    state = {
        number: {name: _laid_out_like(parameters[number], tensor) for name, tensor in tensors.items()}
        for number, tensors in kept.items()
    }
    optimizer.load_state_dict({"state": state, "param_groups": groups})


def _laid_out_like(parameter: Tensor, kept: Tensor) -> Tensor:
    """Return a tensor of a parameter's shape with its strides, which files do not hold.

    Were they others than the parameter's, every step of a resumed run would walk through memory crosswise.
    """
    return torch.empty_like(parameter, dtype=kept.dtype).copy_(kept) if kept.shape == parameter.shape else kept


def _below(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _optimizers(tensors: Mapping[str, Tensor], count: int) -> list[OptimizerState]:
    """Return the tensors of every optimizer, from names such as 0/12/exp_avg."""
    if not 0 <= count <= 8:
        raise ValueError(f"a run has a few optimizers, got {count}")
    states: list[defaultdict[int, dict[str, Tensor]]] = [defaultdict(dict) for _ in range(count)]
    for path, tensor in tensors.items():
        number, parameter, name = path.split("/", 2)
        states[int(number)][int(parameter)][name] = tensor
    return [dict(sorted(state.items())) for state in states]
