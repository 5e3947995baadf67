"""A small directory of results: demonstrations, tokenizers, a policy, records with videos, a table."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oat.data.episodes import STATE
from oat.data.lerobot import LeRobotWriter
from oat.data.video import VideoEncoder
from oat.evaluation.protocol import find_protocol
from oat.evaluation.records import EpisodeRecord, RecordLog
from oat.tables.files import save_tables
from oat.tables.table import Table
from oat.training.config import FitConfig
from oat.training.tokenizers import fit_tokenizer
from tests.evaluation.test_records import record
from tests.policies.small import autoregressive
from tests.tokenizers.fitted import smooth_chunks

HOSTILE_TASK = "reach <script>window.hacked = true</script>"
HOSTILE_NAME = "fast <img src=x onerror=hacked=true>"
HOSTILE_PATH = "demos <svg onload=hacked=true>"
HOSTILE_REMARK = "seen <a href='javascript:hacked=true' onclick=hacked=true>here</a>"
HOSTILE_DIMENSION = "x <img src=x onerror=hacked=true>"
TABLE = Table(
    "success, %",
    ("method", "reach"),
    (("OAT×", "50 ± 3"), ("a<b", "—")),
    ("20 episodes & 1 seed", "picture: figures/table-sim.png", HOSTILE_REMARK),
)
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
"""A picture."""
HORIZON, SUCCESSES = 16, {"K=1": 4, "K=2": 8, "K=4": 12, "K=8": 18}
EPISODES = 20


def write_demonstrations(path: Path, dim: int = 3) -> Path:
    with LeRobotWriter(path, fps=20, action_names=(HOSTILE_DIMENSION, "y", "z")[:dim]) as writer:
        for number, actions in enumerate(smooth_chunks(12, horizon=40, dim=dim).numpy()):
            writer.add_episode(HOSTILE_TASK if number % 2 else "push", actions, {STATE: np.zeros((40, 4), np.float32)})
    return path


def episodes(protocol: str, method: str, decoding: str, solved: int, tokens: int) -> list[EpisodeRecord]:
    """Of two tasks, from the same conditions for every policy."""
    return [
        replace(
            each := record(number),
            key=replace(each.key, protocol=protocol, method=method, decoding=decoding, task=task),
            success=number < solved,
            best_score=float(number < solved),
            tokens=tokens * each.chunks,
            inference_ms_p50=2.0 + tokens,
        )
        for task in (HOSTILE_TASK, "push")
        for number in range(EPISODES)
    ]


def write_records(folder: Path, records: list[EpisodeRecord]) -> None:
    log = RecordLog(folder / "records.jsonl")
    for each in records:
        log.append(each)
    log.close()


def write_video(path: Path) -> None:
    encoder = VideoEncoder(path, 10, 64, 64)
    encoder.add(np.linspace(0, 255, 10 * 64 * 64 * 3).astype(np.uint8).reshape(10, 64, 64, 3))
    encoder.close()


def write_results(root: Path) -> Path:
    """Everything that the page has a section for."""
    demos = write_demonstrations(root / HOSTILE_PATH)
    options: dict[str, Any] = {"action_horizon": HORIZON, "steps": 40, "validate_every": 20}
    fit_tokenizer(FitConfig.of(demos, root / "tokenizers/oat-seed0", preset="tiny", **options))
    fit_tokenizer(FitConfig.of(demos, root / "tokenizers/bin-seed0", "bin", action_horizon=HORIZON))
    fit_tokenizer(FitConfig.of(demos, root / "tokenizers" / HOSTILE_NAME, "fast", action_horizon=HORIZON))
    policy = root / "policies/oat-seed0"
    autoregressive("oat").save(policy / "best")
    lines = [{"step": step, "loss": 1 / step, "validation/nll_1": 2 / step} for step in (20, 40, 60)]
    (policy / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    usual = find_protocol("metaworld").hash
    written = [
        each
        for decoding, solved in SUCCESSES.items()
        for each in episodes(usual, "oat", decoding, solved, int(decoding[2:]))
    ]
    write_records(root / "records/oat-seed0", written)
    write_records(root / "records/dp-seed0", episodes(usual, "dp", "10 steps", 6, 10))
    write_records(root / "records/other", episodes("elsewhere", "oat", "K=8", 3, 8))
    stopped = [
        replace(each, chunk_tokens=(1, 5), tokens=6) for each in episodes(usual, "oat", "K=8 residual=0.1", 15, 3)
    ]
    write_records(root / "records/oat-seed0-residual-10", stopped)
    write_video(root / f"records/oat-seed0-residual-10/videos/{stopped[0].key.file_name}.mp4")
    for each in (written[0], written[-1]):
        write_video(root / f"records/oat-seed0/videos/{each.key.file_name}.mp4")
    save_tables(root / "tables/table-sim.json", [TABLE])
    (root / "figures").mkdir()
    (root / "figures/table-sim.png").write_bytes(PIXEL)
    return root
