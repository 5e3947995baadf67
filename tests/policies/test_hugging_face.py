"""Backbones and text encoders of Hugging Face, here tiny and with random weights, as names of local directories."""

import importlib
import json
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from oat.data.chunks import WindowConfig, Windows
from oat.data.episodes import Episodes
from oat.errors import InvalidOption, UnknownName
from oat.interfaces import Observation
from oat.nn.recipe import TrainConfig
from oat.nn.text import embed_texts
from oat.nn.vision import HuggingFaceVision
from oat.policies import DiffusionPolicy, load_policy
from oat.policies.context import ContextConfig, ContextEncoder, VisionConfig, describe_context
from oat.training.optimizers import make_optimizers
from oat.training.policies import PolicyTraining
from tests.datasets import CAMERA
from tests.policies.small import diffusion

TRANSFORMERS = importlib.import_module("transformers")
MODELS = ("resnet", "dinov2", "siglip", "siglip-with-text")
SMALL: dict[str, Any] = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
PATCHES = {**SMALL, "image_size": 28, "patch_size": 7}
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "push", "pull", "the", "block", "open", "door")


def _vision_model(kind: str) -> Any:
    torch.manual_seed(0)
    if kind == "resnet":
        config = TRANSFORMERS.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic")
        return TRANSFORMERS.ResNetModel(config)
    if kind == "dinov2":
        return TRANSFORMERS.Dinov2Model(TRANSFORMERS.Dinov2Config(**PATCHES))
    if kind == "siglip":
        return TRANSFORMERS.SiglipVisionModel(TRANSFORMERS.SiglipVisionConfig(**PATCHES, intermediate_size=32))
    text = {**SMALL, "intermediate_size": 32, "vocab_size": 32, "bos_token_id": 1, "eos_token_id": 2}
    config = TRANSFORMERS.SiglipConfig(vision_config={**PATCHES, "intermediate_size": 32}, text_config=text)
    return TRANSFORMERS.SiglipModel(config)


@pytest.fixture
def backbone(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    _vision_model(request.param).save_pretrained(tmp_path / request.param)
    return tmp_path / str(request.param)


every_model = pytest.mark.parametrize("backbone", MODELS, indirect=True)


def _context(backbone: Path, frozen: bool) -> ContextConfig:
    vision = VisionConfig(str(backbone), frozen)
    return ContextConfig(cameras=(CAMERA,), camera_sizes=((30, 40),), tasks=("push",), vision=vision)


def _observation(rows: int = 2) -> Observation:
    images = np.random.default_rng(0).integers(0, 256, (rows, 2, 30, 40, 3), dtype=np.uint8)
    return Observation({CAMERA: images}, ("push",) * rows)


def _groups(policy: DiffusionPolicy, vision_learning_rate: float) -> list[dict[str, Any]]:
    """The parameters as the training loop groups them."""
    windows = Windows(Episodes.from_arrays(np.zeros((4, 3), np.float32), [4]), WindowConfig())
    task = PolicyTraining(windows, windows, vision_learning_rate, policy)
    return [g for each in make_optimizers(policy, task.learning_rates(), TrainConfig()) for g in each.param_groups]


def _train(policy: DiffusionPolicy) -> None:
    """Three large steps with the loop's own parameter groups."""
    groups = _groups(policy, 1.0)
    optimizer = torch.optim.AdamW([{"params": group["params"], "lr": 0.01 * group["factor"]} for group in groups])
    values, tasks = policy.context.read(_observation())
    for step in range(3):
        policy.train()
        actions = torch.zeros(2, policy.space.action_horizon, policy.space.model_dim)
        valid = torch.ones(actions.shape[:2], dtype=torch.bool)
        loss = policy(values, tasks, actions, valid, torch.Generator().manual_seed(step)).mean()
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()


@every_model
def test_features_are_vectors_of_images_of_any_size(backbone: Path) -> None:
    vision = HuggingFaceVision.from_pretrained(str(backbone), frozen=True)
    for size in ((28, 28), (40, 50), (64, 64)):
        features = vision(torch.rand(3, 3, *size))
        assert features.shape == (3, vision.features) == (3, 16)
        assert not features.requires_grad
    assert not torch.allclose(features[0], features[1])


@every_model
def test_frozen_weights_stay_and_trained_ones_move(backbone: Path) -> None:
    for frozen in (True, False):
        policy = diffusion(_context(backbone, frozen))
        vision = policy.context.vision["0"]
        before = {name: tensor.clone() for name, tensor in vision.state_dict().items()}
        assert [p.requires_grad for p in vision.parameters()].count(True) > 0 or frozen
        _train(policy)
        same = [torch.equal(before[name], tensor) for name, tensor in vision.state_dict().items()]
        assert all(same) if frozen else sum(same) < 0.7 * len(same)
        assert policy.training
        modes = [module.training for module in vision.modules() if not isinstance(module, nn.BatchNorm2d)]
        assert not any(modes) if frozen else all(modes)


@pytest.mark.parametrize("backbone", ["resnet"], indirect=True)
def test_batch_statistics_stay_those_of_pretraining(backbone: Path) -> None:
    """So that a row's features do not depend on the batch it is trained in, nor averaged weights on others' outputs."""
    policy = diffusion(_context(backbone, frozen=False))
    before = {name: buffer.clone() for name, buffer in policy.named_buffers() if "running" in name}
    assert before
    _train(policy)
    assert all(torch.equal(before[name], buffer) for name, buffer in policy.named_buffers() if name in before)


@every_model
def test_all_that_is_trained_has_a_gradient(backbone: Path) -> None:
    """Several processes would otherwise wait for it: DINOv2 has a token for masked patches."""
    vision = HuggingFaceVision.from_pretrained(str(backbone), frozen=False).train()
    torch.autograd.backward(vision(torch.rand(2, 3, 28, 28)).square().sum())
    assert all(parameter.grad is not None for parameter in vision.parameters() if parameter.requires_grad)


@pytest.mark.parametrize("backbone", ["siglip"], indirect=True)
def test_the_backbone_has_its_own_learning_rate(backbone: Path) -> None:
    policy = diffusion(_context(backbone, frozen=False))
    groups = {group["factor"]: group["params"] for group in _groups(policy, 0.2)}
    assert set(groups) == {0.2, 1.0}
    vision = {id(parameter) for parameter in policy.context.vision.parameters()}
    assert {id(parameter) for parameter in groups[0.2]} == vision
    assert not vision & {id(parameter) for parameter in groups[1.0]}
    frozen = diffusion(_context(backbone, frozen=True))
    assert [group["factor"] for group in _groups(frozen, 0.2)] == [1.0]


@every_model
@pytest.mark.parametrize("frozen", [True, False])
def test_a_checkpoint_needs_no_other_files(backbone: Path, frozen: bool, tmp_path: Path) -> None:
    policy = diffusion(_context(backbone, frozen))
    _train(policy)
    policy.save(tmp_path / "policy")
    expected = policy.eval().predict_chunk(_observation()).actions
    shutil.rmtree(backbone)
    loaded = load_policy(tmp_path / "policy")
    assert torch.equal(loaded.predict_chunk(_observation()).actions, expected)
    loaded.save(tmp_path / "again")
    assert torch.equal(load_policy(tmp_path / "again").predict_chunk(_observation()).actions, expected)


@pytest.mark.parametrize("backbone", ["dinov2"], indirect=True)
def test_images_are_prepared_as_the_model_s_own_processor_says(
    backbone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean, deviation and size; the size may be another than the one the weights were trained at."""
    described = {
        "image_mean": [0.5, 0.25, 0.0],
        "image_std": [0.5, 0.25, 1.0],
        "crop_size": {"height": 14, "width": 14},
    }
    (backbone / "preprocessor_config.json").write_text(json.dumps({"image_processor_type": "Any", **described}))
    policy, seen = diffusion(_context(backbone, frozen=True)), []
    policy.save(tmp_path / "policy")

    def watch(pixels: Tensor) -> Tensor:
        seen.append(pixels)
        return torch.zeros(len(pixels), 16)

    for each in (policy, load_policy(tmp_path / "policy")):
        vision = each.context.vision["0"]
        assert isinstance(vision, HuggingFaceVision)
        monkeypatch.setattr(vision, "_pooled", watch)
        vision(torch.tensor([1.0, 0.5, 0.25])[:, None, None].expand(2, 3, 28, 28))
    for pixels in seen:
        expected = torch.tensor([1.0, 1.0, 0.25])[:, None, None].expand(2, 3, 14, 14)
        torch.testing.assert_close(pixels, expected)
    assert len(seen) == 2


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(InvalidOption, match="cannot load the vision backbone"):
        HuggingFaceVision.from_pretrained(str(tmp_path), frozen=True)
    with pytest.raises(InvalidOption, match="cannot load the text encoder"):
        embed_texts(str(tmp_path), ["push"])


def _save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    tokenizer = Tokenizer(models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    ends = [("[CLS]", 2), ("[SEP]", 3)]
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
    TRANSFORMERS.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    ).save_pretrained(folder)


@pytest.fixture
def text_encoder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    config = TRANSFORMERS.BertConfig(
        **SMALL, vocab_size=len(WORDS), intermediate_size=32, max_position_embeddings=16, initializer_range=0.5
    )
    TRANSFORMERS.BertModel(config).save_pretrained(tmp_path / "bert")
    _save_tokenizer(tmp_path / "bert")
    return tmp_path / "bert"


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each model was loaded."""
    counted, original = Counter[str](), TRANSFORMERS.AutoModel.from_pretrained

    def count(name: str, **options: Any) -> Any:
        counted[name] += 1
        return original(name, **options)

    monkeypatch.setattr(TRANSFORMERS.AutoModel, "from_pretrained", count)
    return counted


def _spoken(text_encoder: Path) -> ContextEncoder:
    random = np.random.default_rng(0)
    episodes = Episodes.from_arrays(
        np.zeros((20, 3), np.float32),
        [10, 10],
        ["push the block", "open the door"],
        observations={"observation.state": random.normal(size=(20, 4)).astype(np.float32)},
    )
    torch.manual_seed(0)
    encoder = ContextEncoder(describe_context(episodes, ("observation.state",), text_encoder=str(text_encoder)), 32)
    encoder.fit(episodes)
    return encoder.eval()


@torch.no_grad()
def _task_token(encoder: ContextEncoder, task: str) -> Tensor:
    observation = Observation({"observation.state": np.zeros((1, 2, 4), np.float32)}, (task,))
    return encoder(*encoder.read(observation))[0, -1]


def test_texts_are_embedded_alike_alone_and_together(text_encoder: Path) -> None:
    both = embed_texts(str(text_encoder), ["push the block", "open"])
    assert both.shape == (2, 16)
    torch.testing.assert_close(embed_texts(str(text_encoder), ["open"]), both[1:], atol=1e-6, rtol=1e-5)
    assert not torch.allclose(both[0], both[1], atol=1e-3)
    assert embed_texts(str(text_encoder), ["push the block " * 20]).shape == (1, 16)  # cut to what it reads


def test_an_encoder_with_a_decoder_is_averaged_over_its_words(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = TRANSFORMERS.T5Config(vocab_size=len(WORDS), d_model=16, num_layers=1, num_heads=2, d_ff=32, d_kv=8)
    TRANSFORMERS.T5Model(config).save_pretrained(tmp_path)
    _save_tokenizer(tmp_path)
    both = embed_texts(str(tmp_path), ["push the block", "open"])
    torch.testing.assert_close(embed_texts(str(tmp_path), ["open"]), both[1:], atol=1e-6, rtol=1e-5)


def test_the_text_encoder_is_loaded_once_and_again_for_a_new_task(text_encoder: Path, loads: Counter[str]) -> None:
    encoder = _spoken(text_encoder)
    assert loads == {str(text_encoder): 1}
    known = [_task_token(encoder, task) for task in ("push the block", "open the door") * 3]
    assert loads.total() == 1
    assert not torch.allclose(known[0], known[1], atol=1e-3)
    new = [_task_token(encoder, "pull the block") for _ in range(3)]
    assert loads.total() == 2
    assert torch.equal(new[0], new[2])
    assert all(not torch.allclose(new[0], old, atol=1e-3) for old in known)
    assert torch.equal(_task_token(encoder, "push the block"), known[0])
    expected = embed_texts(str(text_encoder), ["pull the block"])
    torch.testing.assert_close(new[0], encoder.task.embedding(expected)[0].detach())


def test_tasks_are_remembered_without_the_text_encoder(text_encoder: Path, tmp_path: Path) -> None:
    encoder = _spoken(text_encoder)
    policy = diffusion(replace(encoder.config, tasks=encoder.config.tasks))
    policy.context = encoder
    state = np.ones((3, 2, 4), np.float32)
    observation = Observation({"observation.state": state}, ("push the block", "pull the door", "open the door"))
    expected = policy.eval().predict_chunk(observation).actions  # the second task is new
    policy.save(tmp_path / "policy")
    shutil.rmtree(text_encoder)
    loaded = load_policy(tmp_path / "policy")
    torch.testing.assert_close(loaded.predict_chunk(observation).actions, expected)
    with pytest.raises((InvalidOption, UnknownName), match="text encoder"):
        loaded.predict_chunk(replace(observation, tasks=("push the block", "never seen", "open the door")))


def test_text_embeddings_are_not_trained(text_encoder: Path) -> None:
    names = dict(_spoken(text_encoder).named_parameters())
    assert not any("table" in name for name in names)
    assert "task.embedding.weight" in names
