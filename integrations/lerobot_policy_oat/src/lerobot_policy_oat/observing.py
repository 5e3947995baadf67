"""What LeRobot shows a policy, turned into what ours see: uint8 images of their size, and a history of frames."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from oat.errors import InvalidObservation
from oat.policies.context import ContextConfig
from oat.policies.pixels import to_pixels

TASK = "task"


class Reader:
    """Read batches of LeRobot as the values and tasks that a policy's context names."""

    def __init__(self, context: ContextConfig) -> None:
        self._context = context

    def values(self, batch: Mapping[str, Any], frames: bool) -> dict[str, Tensor]:
        """Return every observed key: (batch, H_o, …) of a batch with frames, (batch, …) of one without."""
        missing = [key for key in self._context.keys if key not in batch]
        if missing:
            raise InvalidObservation(f"the batch lacks {', '.join(missing)}; it has {', '.join(sorted(batch))}")
        values: dict[str, Tensor] = {}
        for key, size in self._context.sizes().items():
            value = batch[key]
            is_camera = key in self._context.cameras
            value = to_pixels(value, (size[0], size[1])) if is_camera else value.float()
            # LeRobot leaves out the axis of frames where there is one only.
            values[key] = value[:, None] if frames and value.ndim == len(size) + 1 else value
        return values

    def tasks(self, batch: Mapping[str, Any], rows: int) -> Sequence[str]:
        """Return a task for every row; a policy that knows a single one does that, whatever it is called."""
        known = self._context.tasks
        if len(known) == 1:
            return known * rows
        given = batch.get(TASK)
        if given is None:
            raise InvalidObservation(f"the batch lacks {TASK!r}, and the policy knows several: {', '.join(known)}")
        return (given,) * rows if isinstance(given, str) else tuple(given)


class History:
    """Keep the last frames of every row; at the beginning the first one stands for those before it."""

    def __init__(self, frames: int) -> None:
        self._frames: deque[Mapping[str, Tensor]] = deque(maxlen=frames)

    def add(self, values: Mapping[str, Tensor]) -> None:
        """Take the current frame."""
        missing = 1 if self._frames else self._frames.maxlen or 1
        self._frames.extend([values] * missing)

    def stacked(self) -> dict[str, Tensor]:
        """Return (batch, frames, …) of every key."""
        return {key: torch.stack([frame[key] for frame in self._frames], dim=1) for key in self._frames[-1]}

    def clear(self) -> None:
        """Forget all frames, because an episode begins."""
        self._frames.clear()
