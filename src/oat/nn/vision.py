"""Images to feature vectors: convolutions trained from scratch, or any Hugging Face vision backbone."""

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int64, UInt8
from torch import Tensor, nn
from torch.nn import functional as F

from oat.errors import InvalidOption
from oat.io.extras import import_extra

Images = UInt8[Tensor, "batch time height width 3"]
Pixels = Float[Tensor, "n 3 height width"]

_IMAGENET_MEAN = (0.485, 0.456, 0.406)
_IMAGENET_STD = (0.229, 0.224, 0.225)


def crop_offsets(images: Images, size: tuple[int, int], generator: torch.Generator | None) -> Int64[Tensor, "batch 2"]:
    """Return the upper left corner of each row's crop: random with a generator, else the centre's."""
    room = torch.tensor(images.shape[2:4]) - torch.tensor(size)
    if generator is None:
        return (room // 2).expand(images.shape[0], 2)
    return (torch.rand(len(images), 2, generator=generator) * (room + 1)).long()


def crop(
    images: Images, size: tuple[int, int], offsets: Int64[Tensor, "batch 2"]
) -> UInt8[Tensor, "batch time rows columns 3"]:
    """Return the same crop of all frames of a row, so that motion stays motion."""
    offsets = offsets.to(images.device)
    rows = offsets[:, :1] + torch.arange(size[0], device=images.device)
    columns = offsets[:, 1:] + torch.arange(size[1], device=images.device)
    batch = torch.arange(images.shape[0], device=images.device)
    return images[batch[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2, 4)


class SpatialSoftmax(nn.Module):
    """Where each channel is active: its expected position in [-1, 1]², under a softmax over the image."""

    def forward(self, maps: Float[Tensor, "n channels height width"]) -> Float[Tensor, "n features"]:
        """Return the expected x of every channel, then the expected y."""
        attention = maps.flatten(2).softmax(-1).reshape(maps.shape)
        y, x = (torch.linspace(-1, 1, length, device=maps.device) for length in maps.shape[2:])
        return torch.cat([(attention.sum(2) * x).sum(-1), (attention.sum(3) * y).sum(-1)], dim=-1)


class ResidualBlock(nn.Module):
    """Two 3 × 3 convolutions with group normalisation, at half the resolution."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, stride=2, padding=1, bias=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.shortcut = nn.Conv2d(inputs, outputs, 1, stride=2, bias=False)
        self.first_norm = nn.GroupNorm(outputs // 8, outputs)
        self.second_norm = nn.GroupNorm(outputs // 8, outputs)

    def forward(self, x: Float[Tensor, "n inputs height width"]) -> Float[Tensor, "n outputs h w"]:
        """Return features at half the resolution."""
        inner = self.second_norm(self.second(F.relu(self.first_norm(self.first(x)))))
        return F.relu(inner + self.shortcut(x))


class ConvolutionalVision(nn.Module):
    """Residual convolutions ending in keypoints; group instead of batch normalisation, which averaged weights need."""

    def __init__(self, channels: tuple[int, ...]) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels[0], 5, stride=2, padding=2)
        self.stem_norm = nn.GroupNorm(channels[0] // 8, channels[0])
        self.blocks = nn.Sequential(*(ResidualBlock(a, b) for a, b in pairwise(channels)))
        self.keypoints = SpatialSoftmax()
        self.features = 2 * channels[-1]

    def forward(self, pixels: Pixels) -> Float[Tensor, "n features"]:
        """Return the keypoints of images whose pixels are in [0, 1]."""
        return self.keypoints(self.blocks(F.relu(self.stem_norm(self.stem(2 * pixels - 1)))))


@dataclass(frozen=True)
class Pretrained:
    """A Hugging Face vision model without its weights: enough to build it again anywhere."""

    architecture: dict[str, Any]
    mean: tuple[float, ...] = _IMAGENET_MEAN
    std: tuple[float, ...] = _IMAGENET_STD
    image_size: int | None = None
    """Height and width that images are resized to; None leaves them as they are."""


class HuggingFaceVision(nn.Module):
    """A backbone from `transformers`; its weights are part of our checkpoints, frozen or not."""

    mean: Tensor
    std: Tensor

    def __init__(self, pretrained: Pretrained, frozen: bool, model: nn.Module | None = None) -> None:
        super().__init__()
        self.pretrained = pretrained
        self.frozen = frozen
        self.model = _vision_part(_build(pretrained.architecture) if model is None else model)
        self.model.requires_grad_(not frozen).eval()  # measuring its outputs must not change batch statistics
        self.register_buffer("mean", torch.tensor(pretrained.mean)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(pretrained.std)[:, None, None], persistent=False)
        size = pretrained.image_size or 64
        outputs = self._pooled(torch.zeros(1, 3, size, size))
        self.features = outputs.shape[1]
        if not frozen:
            _freeze_unused(self.model, outputs)

    @classmethod
    def from_pretrained(cls, name: str, frozen: bool) -> "HuggingFaceVision":
        """Return a model by its name on the hub or from a local directory."""
        transformers = import_extra("transformers", "hf")
        try:
            model = transformers.AutoModel.from_pretrained(name)
        except (OSError, ValueError) as error:
            raise InvalidOption(f"cannot load the vision backbone {name!r}: {error}") from error
        described = _preprocessing(name)
        mean = described.get("image_mean", _IMAGENET_MEAN)
        std = described.get("image_std", _IMAGENET_STD)
        architecture = model.config.to_dict()
        return cls(
            Pretrained(architecture, tuple(mean), tuple(std), _image_size(architecture, described)), frozen, model
        )

    def train(self, mode: bool = True) -> "HuggingFaceVision":
        """Change the mode, except of a frozen backbone and of batch normalisation, which averaged weights forbid."""
        super().train(mode and not self.frozen)
        for module in self.model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eval()
        return self

    def forward(self, pixels: Pixels) -> Float[Tensor, "n features"]:
        """Return the backbone's pooled features of images resized to what it was built for."""
        size = self.pretrained.image_size
        if size is not None and pixels.shape[2:] != (size, size):
            pixels = F.interpolate(pixels, (size, size), mode="bilinear", antialias=True)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            return self._pooled((pixels - self.mean) / self.std)

    def _pooled(self, pixels: Pixels) -> Float[Tensor, "n features"]:
        outputs = self.model(pixel_values=pixels)
        pooled = getattr(outputs, "pooler_output", None)
        return outputs.last_hidden_state.mean(1) if pooled is None else pooled.flatten(1)


def _vision_part(model: nn.Module) -> nn.Module:
    """Return the part of a model that sees: CLIP and SigLIP hold a text model as well."""
    part = getattr(model, "vision_model", model)
    assert isinstance(part, nn.Module)
    return part


def _freeze_unused(model: nn.Module, outputs: Float[Tensor, "n features"]) -> None:
    """Freeze parameters without a gradient, such as the token for masked patches: several processes would wait."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(outputs.sum(), parameters, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.requires_grad_(gradient is not None)


def _image_size(architecture: dict[str, Any], preprocessing: dict[str, Any]) -> int | None:
    """Return the size that the model's own image processor makes images, else the one the model was built for."""
    built_for = architecture.get("vision_config", architecture).get("image_size")
    for size in (preprocessing.get("crop_size"), preprocessing.get("size"), built_for):
        height = size.get("height") if isinstance(size, dict) else size
        if isinstance(height, int):
            return height
    return None


def _build(architecture: dict[str, Any]) -> nn.Module:
    transformers = import_extra("transformers", "hf")
    described = {name: value for name, value in architecture.items() if name != "model_type"}
    return transformers.AutoModel.from_config(
        transformers.AutoConfig.for_model(architecture["model_type"], **described)
    )


def _preprocessing(name: str) -> dict[str, Any]:
    """Return what the model's own image processor does, where it is recorded."""
    mixin = import_extra("transformers.image_processing_base", "hf").ImageProcessingMixin
    try:
        described, _ = mixin.get_image_processor_dict(Path(name) if Path(name).is_dir() else name)
        return described
    except (OSError, ValueError):
        return {}
