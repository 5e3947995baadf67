"""What a policy sees, as context tokens: per frame one for the state and one per camera, and one for the task."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from oat.data.episodes import LARGEST_IMAGE, Episodes, is_image
from oat.data.normalize import Normalizer, observation_statistics
from oat.errors import InvalidObservation, InvalidOption, unknown_name
from oat.interfaces import Observation
from oat.nn.text import embed_texts
from oat.nn.vision import ConvolutionalVision, HuggingFaceVision, Images, Pretrained, crop, crop_offsets

Values = Mapping[str, Tensor]


@dataclass(frozen=True)
class VisionConfig:
    """Say how images are read: by which network, and which part of them."""

    backbone: str | None = None
    """A Hugging Face vision model by name or local directory; None trains convolutions from scratch."""
    frozen: bool = False
    """Whether the backbone's weights stay as they are."""
    crop: float = 0.9
    """The share of height and width that is kept: a random crop in training, the centre in use."""
    channels: tuple[int, ...] = (32, 64, 64)
    """Features of the convolutions, from the stem on, each at half the resolution of the one before."""
    pretrained: Pretrained | None = None
    """The backbone's architecture, which a checkpoint records so that it can be built without the original files."""

    def __post_init__(self) -> None:
        if not 0 < self.crop <= 1:
            raise InvalidOption(f"crop must be in (0, 1], got {self.crop}")
        if not self.channels or any(features < 8 or features % 8 for features in self.channels):
            given = " ".join(map(str, self.channels)) or "none"
            raise InvalidOption(f"channels of convolutions must be multiples of 8, such as 16 32 64, got {given}")
        if self.frozen and self.backbone is None:
            raise InvalidOption("convolutions from scratch cannot be frozen: name a vision backbone")


@dataclass(frozen=True)
class ContextConfig:
    """Say what is observed; its sizes come from the data set."""

    obs_horizon: int = 2
    """H_o: frames up to and including the current one."""
    vectors: tuple[str, ...] = ()
    """State-like keys, read together as one token per frame."""
    vector_dims: tuple[int, ...] = ()
    cameras: tuple[str, ...] = ()
    """Image keys, one token per frame each."""
    camera_sizes: tuple[tuple[int, int], ...] = ()
    """Height and width of each."""
    tasks: tuple[str, ...] = ()
    """The task strings; one token tells which."""
    text_encoder: str | None = None
    """A Hugging Face text encoder by name or local directory; None learns one embedding per task."""
    text_dim: int = 0
    vision: VisionConfig = field(default_factory=VisionConfig)

    def __post_init__(self) -> None:
        if len(self.vectors) != len(self.vector_dims) or len(self.cameras) != len(self.camera_sizes):
            raise InvalidOption("every vector needs its dimension and every camera its size")
        if self.obs_horizon < 1 or min(self.vector_dims, default=1) < 1:
            raise InvalidOption(
                f"obs_horizon and vector_dims must be at least 1, got {self.obs_horizon} and {self.vector_dims}"
            )
        for camera, size in zip(self.cameras, self.camera_sizes, strict=True):
            if not all(1 <= side <= LARGEST_IMAGE for side in size):
                raise InvalidOption(f"{camera} must have sides of 1…{LARGEST_IMAGE} pixels, got {size}")

    @property
    def keys(self) -> tuple[str, ...]:
        """Return all observation keys, vectors first."""
        return (*self.vectors, *self.cameras)

    def sizes(self) -> dict[str, tuple[int, ...]]:
        """Return the shape of one frame of every key."""
        vectors = {key: (dim,) for key, dim in zip(self.vectors, self.vector_dims, strict=True)}
        images = {key: (*size, 3) for key, size in zip(self.cameras, self.camera_sizes, strict=True)}
        return {**vectors, **images}


def describe_context(
    episodes: Episodes,
    keys: Sequence[str],
    obs_horizon: int = 2,
    vision: VisionConfig | None = None,
    text_encoder: str | None = None,
) -> ContextConfig:
    """Return the context of a data set's observations with these keys."""
    if not keys:
        raise InvalidOption(
            f"a policy must observe something; {episodes.source} has {', '.join(episodes.observations) or 'nothing'}"
        )
    frames = {key: episodes.observation(key) for key in keys}
    cameras = tuple(key for key in keys if is_image(frames[key]))
    vectors = tuple(key for key in keys if key not in cameras)
    for key in vectors:
        if len(frames[key].shape) != 2:
            raise InvalidOption(f"{key} has frames of shape {frames[key].shape[1:]}; states must be vectors")
    return ContextConfig(
        obs_horizon=obs_horizon,
        vectors=vectors,
        vector_dims=tuple(int(frames[key].shape[1]) for key in vectors),
        cameras=cameras,
        camera_sizes=tuple((int(frames[key].shape[1]), int(frames[key].shape[2])) for key in cameras),
        tasks=episodes.tasks,
        text_encoder=text_encoder,
        text_dim=0 if text_encoder is None else embed_texts(text_encoder, episodes.tasks).shape[1],
        vision=vision or VisionConfig(),
    )


class TaskToken(nn.Module):
    """A learned embedding for each task string, or a text encoder's, computed once and kept."""

    table: Tensor

    def __init__(self, config: ContextConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.tasks = list(config.tasks)
        if config.text_encoder is None:
            self.embedding: nn.Module = nn.Embedding(len(self.tasks), dim)
            return
        self.register_buffer("table", torch.zeros(len(self.tasks), config.text_dim))
        self.embedding = nn.Linear(config.text_dim, dim)

    def find(self, tasks: Sequence[str]) -> Int64[Tensor, " batch"]:
        """Return the number of each task string; a text encoder takes in new ones."""
        for task in dict.fromkeys(tasks):
            if task not in self.tasks:
                if self.config.text_encoder is None:
                    raise unknown_name("task", task, self.tasks)
                with _taking_in:
                    self._take_in(task, self.config.text_encoder)
        return torch.tensor([self.tasks.index(task) for task in tasks])

    def _take_in(self, task: str, text_encoder: str) -> None:
        if task not in self.tasks:  # another thread may have been faster
            self.table = torch.cat([self.table, embed_texts(text_encoder, [task]).to(self.table)])
            self.tasks.append(task)  # last, so that every number has its row

    def forward(self, numbers: Int64[Tensor, " batch"]) -> Float[Tensor, "batch 1 dim"]:
        """Return one token for every row's task."""
        given = numbers if self.config.text_encoder is None else self.table[numbers]
        return self.embedding(given)[:, None]


class ContextEncoder(nn.Module):
    """Encode observation histories and tasks as context tokens."""

    def __init__(self, config: ContextConfig, dim: int) -> None:
        super().__init__()
        self.config = config
        self.normalizer = Normalizer(sum(config.vector_dims))
        frame_tokens = len(config.cameras) + bool(config.vectors)
        if config.vectors:
            self.from_state = nn.Sequential(
                nn.Linear(sum(config.vector_dims), 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
            )
        self.vision = nn.ModuleDict()
        self.from_features = nn.ModuleDict()
        for number in range(len(config.cameras)):
            encoder = _make_vision(config.vision)
            self.vision[str(number)] = encoder
            self.from_features[str(number)] = nn.Linear(encoder.features, dim)
        self.task = TaskToken(config, dim)
        self.positions = nn.Parameter(torch.randn(config.obs_horizon, frame_tokens, dim) * 0.02)

    @property
    def num_tokens(self) -> int:
        """Return how many context tokens there are: those of all frames, and the task's."""
        return self.positions.shape[0] * self.positions.shape[1] + 1

    def fit(self, episodes: Episodes) -> None:
        """Take statistics of states from training episodes, embeddings of tasks from the text encoder."""
        if self.config.vectors:
            statistics = [observation_statistics(episodes, key) for key in self.config.vectors]
            parts = [Normalizer.from_statistics(each, "quantile") for each in statistics]
            for name, buffer in self.normalizer.named_buffers():
                values = [part.get_buffer(name) for part in parts]
                buffer.copy_(values[0] if buffer.ndim == 0 else torch.cat(values))
            self.normalizer.limit.fill_(_STATE_LIMIT)  # a sensor that fails must not drive the network anywhere
        if self.config.text_encoder is not None:
            self.task.table.copy_(embed_texts(self.config.text_encoder, self.config.tasks))

    def forward(
        self, values: Values, tasks: Int64[Tensor, " batch"], generator: torch.Generator | None = None
    ) -> Float[Tensor, "batch tokens dim"]:
        """Return the context tokens; with a generator images are cropped at random, else at the centre."""
        tokens = []
        if self.config.vectors:
            state = torch.cat([values[key].float() for key in self.config.vectors], dim=-1)
            tokens.append(self.from_state(self.normalizer.normalize(state)))
        for number, key in enumerate(self.config.cameras):
            tokens.append(self._see(str(number), values[key], generator))
        # The task has no position: it is the only token that is not of a frame.
        frames = torch.stack(tokens, dim=2) + self.positions
        return torch.cat([frames.flatten(1, 2), self.task(tasks)], dim=1)

    def _see(self, camera: str, images: Images, generator: torch.Generator | None) -> Float[Tensor, "batch time dim"]:
        height, width = (max(1, round(self.config.vision.crop * side)) for side in images.shape[2:4])
        images = crop(images, (height, width), crop_offsets(images, (height, width), generator))
        pixels = images.flatten(0, 1).permute(0, 3, 1, 2).float() / 255
        features = self.vision[camera](pixels)
        return self.from_features[camera](features).reshape(*images.shape[:2], -1)

    def read(
        self, observation: Observation, also: Mapping[str, tuple[int, ...]] | None = None
    ) -> tuple[Values, Int64[Tensor, " batch"]]:
        """Return an observation and its tasks' numbers on this module's device; `also` names further vectors."""
        values = read_values(self.config, observation, also)
        tasks = self.task.find(observation.tasks)
        device = self.positions.device
        return {key: value.to(device) for key, value in values.items()}, tasks.to(device)


def read_values(
    config: ContextConfig, observation: Observation, also: Mapping[str, tuple[int, ...]] | None = None
) -> Values:
    """Return what a context sees of an observation, after every check; `also` names further vectors."""
    sizes = {**(also or {}), **config.sizes()}
    _check(config, observation, sizes)
    values = {key: torch.as_tensor(observation.values[key]) for key in sizes}
    return {key: value if key in config.cameras else value.float() for key, value in values.items()}


def _check(config: ContextConfig, observation: Observation, sizes: Mapping[str, tuple[int, ...]]) -> None:
    if len(observation) == 0:
        raise InvalidObservation("the observation has no rows")
    for key, size in sizes.items():
        if key not in observation.values:
            raise InvalidObservation(
                f"the observation lacks {key!r}; it needs {', '.join(sizes)}, "
                f"got {', '.join(observation.values) or 'nothing'}"
            )
        value = np.asarray(observation.values[key])
        expected = (len(observation), config.obs_horizon, *size)
        if value.shape != expected:
            raise InvalidObservation(f"{key} must be {expected} (rows, frames, …), got {value.shape}")
        if key in config.cameras:
            if value.dtype != np.uint8:
                raise InvalidObservation(f"{key} must be uint8 images, got {value.dtype}")
        elif not np.issubdtype(value.dtype, np.floating):
            raise InvalidObservation(f"{key} must be floating-point numbers, got {value.dtype}")
        elif not (fine := np.abs(value) <= _LARGEST).all():
            where = tuple(np.argwhere(~fine)[0].tolist())
            raise InvalidObservation(f"{key}{list(where)} is {value[where]}")


_taking_in = Lock()
_LARGEST = np.finfo(np.float32).max
_STATE_LIMIT = 3.0  # states far outside what training saw are brought this near to it


def _make_vision(config: VisionConfig) -> ConvolutionalVision | HuggingFaceVision:
    if config.backbone is None:
        return ConvolutionalVision(config.channels)
    if config.pretrained is not None:
        return HuggingFaceVision(config.pretrained, config.frozen)
    return HuggingFaceVision.from_pretrained(config.backbone, config.frozen)
