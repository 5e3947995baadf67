"""The policies as LeRobot makes, trains, saves and calls them, without its commands."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import SIZE
from lerobot.datasets.lerobot_dataset import LeRobotDataset, LeRobotDatasetMetadata
from lerobot.policies.factory import get_policy_class, make_policy, make_policy_config, make_pre_post_processors
from lerobot.utils.import_utils import register_third_party_plugins
from lerobot_policy_oat.configuration_oat import OATConfig
from lerobot_policy_oat.conversion import to_lerobot
from lerobot_policy_oat.modeling_oat import OATPolicy

from oat.errors import InvalidObservation, InvalidOption, UnknownName
from oat.interfaces import Observation
from oat.policies import AutoregressivePolicy, DecodingOptions, Noise, load_policy
from oat.sims.metaworld_lerobot import IMAGE
from oat.tokenizers.loading import load_tokenizer

register_third_party_plugins()
TYPES = ("oat", "quest", "dp", "bc")
STATE = "observation.state"


def make(kind: str, demos: Path, **options: Any) -> OATPolicy:
    usual = {"preset": "tiny", "tokenizer_steps": 3, "chunk_size": 8, "n_action_steps": 4, "device": "cpu"}
    config = make_policy_config(kind, **{**usual, **options})
    policy = make_policy(config, ds_meta=LeRobotDatasetMetadata("oat/demos", root=demos))
    assert isinstance(policy, OATPolicy)
    return policy


def batch_of(policy: OATPolicy, demos: Path, rows: int = 4) -> dict[str, Any]:
    config = policy.config
    steps = {key: [step / 80 for step in config.observation_delta_indices] for key in (STATE, IMAGE)}
    steps["action"] = [step / 80 for step in config.action_delta_indices]
    data = LeRobotDataset("oat/demos", root=demos, delta_timestamps=steps)
    return next(iter(torch.utils.data.DataLoader(data, batch_size=rows, shuffle=True)))


def frame(rows: int, seed: int, tasks: list[str]) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (rows, 3, SIZE, SIZE), generator=generator)
    state = torch.randn(rows, 4, generator=generator)
    return {STATE: state, IMAGE: pixels / 255, "task": tasks}


@pytest.mark.parametrize("kind", TYPES)
def test_every_type_learns_and_its_checkpoint_acts_alike(kind: str, demos: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    policy = make(kind, demos)
    assert get_policy_class(kind) is type(policy)
    optimizer = torch.optim.AdamW(policy.get_optim_params(), 1e-3)
    losses = []
    torch.manual_seed(0)
    batch = batch_of(policy, demos, rows=16)
    for _ in range(12):
        loss, shown = policy.forward(batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert min(losses[-3:]) < losses[0]
    assert all(isinstance(value, float) for value in shown.values())
    kept = optimizer.state_dict()["state"].values()
    assert all(value.is_contiguous() for tensors in kept for value in tensors.values())

    policy.eval()
    policy.save_pretrained(tmp_path / "checkpoint")
    loaded = type(policy).from_pretrained(tmp_path / "checkpoint")
    tasks = list(policy.policy.observed.tasks)
    chunks = []
    for each in (policy, loaded):
        torch.manual_seed(1)
        each.reset()
        chunks.append(each.predict_action_chunk(frame(2, 0, tasks)))
    assert chunks[0].shape == (2, 8, 4)
    torch.testing.assert_close(chunks[0], chunks[1])


def test_an_action_is_the_chunk_s_that_our_own_policy_predicts_from_its_history(demos: Path) -> None:
    policy = make("oat", demos).eval()
    tasks = list(policy.policy.observed.tasks)
    torch.manual_seed(3)
    policy.reset()
    frames = [frame(2, seed, tasks) for seed in range(6)]
    acted = torch.stack([policy.select_action(each) for each in frames], 1)

    torch.manual_seed(3)
    episode = int(torch.randint(2**31, ()))
    for chunk, (earlier, now) in enumerate(((0, 0), (3, 4))):
        values = {
            STATE: np.stack([frames[each][STATE].numpy() for each in (earlier, now)], 1),
            IMAGE: np.stack(
                [(255 * frames[each][IMAGE]).round().byte().permute(0, 2, 3, 1).numpy() for each in (earlier, now)], 1
            ),
        }
        noise = Noise.of([episode, episode + 1], [chunk, chunk])
        wanted = policy.policy.predict_chunk(Observation(values, tuple(tasks)), noise=noise).actions
        executed = acted[:, 4 * chunk : 4 * chunk + 4]
        torch.testing.assert_close(executed, wanted[:, : executed.shape[1]])


def test_num_tokens_and_decoding_are_options(demos: Path) -> None:
    policy = make("oat", demos, num_tokens=1, decoding="tokens").eval()
    decoder: Any = policy.policy.teacher
    torch.nn.init.normal_(decoder.decoder.head.weight, std=0.3)  # after three steps it decodes everything alike
    options = {"chunk_size": 8, "n_action_steps": 4, "device": "cpu", "decoding": "tokens"}
    full = OATPolicy(make_policy_config("oat", **options), policy=policy.policy)
    tasks = list(policy.policy.observed.tasks)
    seen = frame(2, 0, tasks)
    assert not torch.equal(policy.predict_action_chunk(seen), full.predict_action_chunk(seen))
    with pytest.raises(InvalidOption, match="num_tokens must be"):
        make("oat", demos, num_tokens=99)
    with pytest.raises(UnknownName, match="decoding"):
        OATConfig(device="cpu", decoding="greedily")
    with pytest.raises(InvalidOption, match="leave out"):
        make("dp", demos, num_tokens=2)


@pytest.mark.parametrize("kind", TYPES)
def test_temperature_one_of_earlier_configurations_is_as_trained(kind: str, demos: Path) -> None:
    policy = make(kind, demos, temperature=1.0)
    (decoding,) = policy.policy.decodings(policy.config.decoding_options())
    (usual,) = policy.policy.decodings(DecodingOptions())
    assert decoding == usual


@pytest.mark.parametrize(("demonstrator", "exact"), [("scripted", True), ("human", False), ("unknown", False)])
def test_who_demonstrated_decides_how_a_policy_acts(
    demonstrator: str, exact: bool, demos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lerobot_policy_oat.building.read_demonstrator", lambda _: demonstrator)
    policy = make("oat", demos).policy
    assert isinstance(policy, AutoregressivePolicy)
    assert (policy.default_decoding.greedy, policy.default_decoding.remainder) == (exact, exact)
    assert policy.training_record.demonstrator == demonstrator


def test_a_given_tokenizer_is_used_and_must_fit(demos: Path, tmp_path: Path) -> None:
    fitted = make("oat", demos).policy.teacher
    assert fitted is not None
    fitted.save(tmp_path / "tokenizer")
    taken = make("oat", demos, tokenizer=str(tmp_path / "tokenizer")).policy.teacher
    assert taken is not None
    for name, value in load_tokenizer(tmp_path / "tokenizer").state_dict().items():
        torch.testing.assert_close(taken.state_dict()[name], value)
    with pytest.raises(InvalidOption, match=r"chunk_size=8, got 16"):
        make("oat", demos, tokenizer=str(tmp_path / "tokenizer"), chunk_size=16, n_action_steps=4)
    with pytest.raises(InvalidOption, match="needs quest"):
        make("quest", demos, tokenizer=str(tmp_path / "tokenizer"))


def test_what_is_executed_meanwhile_is_the_beginning_of_the_next_chunk(demos: Path) -> None:
    policy = make("bc", demos).eval()
    assert policy.supports_rtc()
    seen = frame(1, 0, list(policy.policy.observed.tasks)[:1])
    alone = policy.predict_action_chunk(seen)
    left = torch.arange(20.0).reshape(5, 4)
    joined = policy.predict_action_chunk(seen, inference_delay=2, prev_chunk_left_over=left)
    torch.testing.assert_close(joined[0, :2], left[:2])
    torch.testing.assert_close(joined[0, 2:], alone[0, 2:])


def test_images_are_averaged_to_the_policy_s_size(demos: Path) -> None:
    policy = make("bc", demos, image_size=12).eval()
    tasks = list(policy.policy.observed.tasks)
    assert policy.policy.observed.camera_sizes == ((12, 12),)
    loss, _ = policy.forward(batch_of(policy, demos))
    assert torch.isfinite(loss)
    small = frame(2, 0, tasks)
    large = {**small, IMAGE: small[IMAGE].repeat_interleave(5, -1).repeat_interleave(5, -2)}
    chunks = []
    for each in (small, large):
        policy.reset()
        chunks.append(policy.predict_action_chunk(each))
    torch.testing.assert_close(*chunks)


def test_what_is_missing_is_told(demos: Path) -> None:
    policy = make("bc", demos).eval()
    seen = frame(1, 0, ["Push a button on the coffee machine"])
    with pytest.raises(InvalidObservation, match=r"lacks observation\.image"):
        policy.select_action({STATE: seen[STATE], "task": seen["task"]})
    with pytest.raises(InvalidObservation, match="lacks 'task'"):
        policy.select_action({STATE: seen[STATE], IMAGE: seen[IMAGE]})
    with pytest.raises(InvalidOption, match=r"--policy\.path"):
        OATPolicy(make_policy_config("oat", device="cpu"))


def test_policies_go_to_lerobot_and_back(demos: Path, tmp_path: Path) -> None:
    ours = make("oat", demos).policy
    ours.save(tmp_path / "ours")
    to_lerobot(load_policy(tmp_path / "ours"), tmp_path / "theirs", execute=4)
    theirs = OATPolicy.from_pretrained(tmp_path / "theirs")
    make_pre_post_processors(theirs.config, str(tmp_path / "theirs"))
    theirs.policy.save(tmp_path / "again")
    again = load_policy(tmp_path / "again")
    observation = ours.random_observation(2)
    noise = Noise.of([0, 1], [0, 0])
    torch.testing.assert_close(
        again.predict_chunk(observation, noise=noise).actions, ours.predict_chunk(observation, noise=noise).actions
    )
