"""`oat calibrate`: the share of stopped chunks that is within the bound holds on demonstrations it has not seen."""

from copy import deepcopy
from pathlib import Path

import numpy as np
import pytest
import torch

from oat.cli import main
from oat.data.episodes import open_dataset
from oat.errors import InvalidOption
from oat.evaluation.decoding_rules import stopping_rules
from oat.io.training_record import TrainingRecord
from oat.policies import TokenDecoding, load_policy
from oat.policies.autoregressive import AutoregressivePolicy
from oat.policies.error_head import ErrorHead
from oat.policies.stopping import Hindsight, Residual, Value
from oat.tables.files import load_tables
from oat.training.config import OUTCOME_FILE, CalibrateConfig
from oat.training.error_heads import _windows, calibrate, measure_prefixes, stop_by
from tests.policies.small import STATE_DIM, autoregressive, observe, policy_of
from tests.tokenizers.fitted import DIM

EXECUTED = 8


def _write(path: Path, episodes: int, seed: int) -> Path:
    """Short episodes whose state tells how fast and how far they move, and so how well they are tokenized."""
    random = np.random.default_rng(seed)
    time = np.linspace(0, 1, 12)[None, :, None]
    speed = random.uniform(0.2, 6.0, (episodes, 1, 1))
    size = random.uniform(0.1, 1.5, (episodes, 1, DIM))
    actions = size * np.sin(speed * 2 * np.pi * time)
    state = np.concatenate([np.broadcast_to(speed, (episodes, 12, 1)), np.broadcast_to(size, (episodes, 12, DIM))], 2)
    np.savez(
        path,
        actions=actions.reshape(-1, DIM).astype(np.float32),
        state=state.reshape(-1, STATE_DIM).astype(np.float32),
        tasks=np.array([("push", "pull")[number % 2] for number in range(episodes)]),
        episode_ends=np.arange(12, 12 * episodes + 1, 12),
    )
    return path


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> tuple[AutoregressivePolicy, ErrorHead]:
    folder = tmp_path_factory.mktemp("head")
    policy = autoregressive("oat")
    policy.training_record = TrainingRecord(validation=0.5, seed=0)
    policy.save(folder / "policy")
    data = _write(folder / "data.npz", 160, 0)
    words = ["--execute", str(EXECUTED), "--windows", "600", "--steps", "150", "--batch", "64"]
    main(["calibrate", str(folder / "policy"), "--data", str(data), "--out", str(folder / "head"), *words])
    loaded = load_policy(folder / "policy")
    assert isinstance(loaded, AutoregressivePolicy)
    (outcome,) = load_tables(folder / "head" / OUTCOME_FILE)
    assert outcome.columns[-1] == "of these within ε %"
    return loaded, ErrorHead.load(folder / "head")


def test_calibration_holds_on_held_out_chunks(
    calibrated: tuple[AutoregressivePolicy, ErrorHead], tmp_path: Path
) -> None:
    policy, head = calibrated
    config = CalibrateConfig(tmp_path, tmp_path, tmp_path, EXECUTED, windows=1200)
    episodes = open_dataset(_write(tmp_path / "new.npz", 120, 1))
    fresh = measure_prefixes(policy, _windows(policy, episodes), config)
    predicted = head.error(fresh.hidden, fresh.last, fresh.counts)
    bounded = (fresh.errors / predicted).amax(1) <= head.margin  # at every prefix, wherever a rule stops
    assert bounded.float().mean() >= 0.87  # of 0.9, less what chunks of some hundred episodes may miss by chance
    checked = 0
    for quantile in (0.5, 0.9, 0.97):
        found = stop_by(head, fresh, float((head.margin * fresh.errors).quantile(quantile)))
        if found.stopped > 0.1:
            assert found.within >= 0.87  # likewise
            checked += 1
    assert checked
    assert torch.isfinite(head.margin)


def test_generating_gives_the_states_that_teaching_gave(calibrated: tuple[AutoregressivePolicy, ErrorHead]) -> None:
    """What the rules read while tokens are generated is what the head was trained on."""
    policy, head = calibrated
    chunk = policy.predict_chunk(observe(5), TokenDecoding(greedy=True))
    assert chunk.tokens is not None
    values, tasks = policy.read(observe(5))
    with torch.no_grad():
        hidden, _ = policy.read_tokens(values, tasks, chunk.tokens.ids)
    counts = torch.arange(1, policy.longest + 1).expand(5, -1)
    bounds = head.margin * head.error(hidden, chunk.tokens.ids, counts)
    epsilon = float(bounds.flatten().sort().values[bounds.numel() // 3])
    epsilon *= 1.0001  # between two bounds: their last digits may differ
    stopped = policy.predict_chunk(observe(5), TokenDecoding(greedy=True, stop=Residual(epsilon, head)))
    enough = bounds <= epsilon
    expected = torch.where(enough.any(1), enough.int().argmax(1) + 1, policy.longest)
    assert stopped.steps.tolist() == expected.tolist()
    priced = policy.predict_chunk(observe(5), TokenDecoding(greedy=True, stop=Value(1e6, head)))
    assert priced.steps.tolist() == [1] * 5


def test_percentages_are_of_what_held_out_chunks_have(
    calibrated: tuple[AutoregressivePolicy, ErrorHead], tmp_path: Path
) -> None:
    head = deepcopy(calibrated[1])
    head.means.copy_(torch.linspace(0.8, 0.1, len(head.means)))  # as of a tokenizer whose tokens help
    head.save(tmp_path / "head", TrainingRecord())
    named = ("residual=50%", "value=10%", "hindsight=25%")
    residual, value, hindsight = stopping_rules(named, tmp_path / "head")
    assert isinstance(residual, Residual)
    assert isinstance(value, Value)
    assert residual.epsilon == pytest.approx(0.45 * float(head.margin))
    assert value.price == pytest.approx(0.01)
    assert isinstance(hindsight, Hindsight)
    assert hindsight.epsilon == pytest.approx(0.2)
    with pytest.raises(InvalidOption, match="a percentage is for"):
        stopping_rules(("fixed=50%",), None)


def test_what_cannot_be_calibrated_is_refused(tmp_path: Path) -> None:
    policy_of("quest").save(tmp_path / "quest")
    data = _write(tmp_path / "data.npz", 6, 0)
    with pytest.raises(InvalidOption, match="every prefix decodes"):
        calibrate(CalibrateConfig(tmp_path / "quest", data, tmp_path / "head"))
    autoregressive("oat").save(tmp_path / "oat")
    with pytest.raises(InvalidOption, match=r"execute must be 1…16"):
        calibrate(CalibrateConfig(tmp_path / "oat", data, tmp_path / "head", execute=17))
    learned = autoregressive("oat")
    learned.training_record = TrainingRecord(episodes=6, frames=1)
    learned.save(tmp_path / "learned")
    with pytest.raises(InvalidOption, match=r"has 6 episodes and \d+ frames, the policy was trained on 6 and 1:"):
        calibrate(CalibrateConfig(tmp_path / "learned", data, tmp_path / "head", execute=8))
    for options in ({"share": 1.0}, {"steps": 0}, {"learning_rate": 0.0}):
        with pytest.raises(InvalidOption):
            CalibrateConfig(tmp_path, data, tmp_path, **options)
