"""Small data sets in every format, written for a test from one list of reference episodes."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import h5py
import numpy as np
import zarr

from oat.data.episodes import IMAGES, STATE
from oat.data.lerobot import LeRobotWriter
from oat.data.lerobot.digests import DIGESTS_PATH

CAMERA = IMAGES + "front"
FPS = 20.0


@dataclass(frozen=True)
class Reference:
    """Hold one episode as it should be read back."""

    task: str
    actions: np.ndarray
    states: np.ndarray
    images: np.ndarray


def make_episodes(count: int = 5, action_dim: int = 3, seed: int = 0, tasks: int = 1) -> list[Reference]:
    """Make episodes of 1 … 19 steps with smooth images, which a video codec keeps recognisable."""
    generator = np.random.default_rng(seed)
    episodes = []
    for number in range(count):
        length = int(generator.integers(1, 20))
        ramp = np.linspace(0, 200, 32)[:, None] + np.linspace(0, 40, 48)
        images = (ramp[None, :, :, None] + 2.0 * np.arange(length)[:, None, None, None]).repeat(3, axis=3)
        images[..., 0] = 20 * number  # tells episodes apart
        episodes.append(
            Reference(
                f"task {number % tasks}",
                generator.normal(size=(length, action_dim)).astype(np.float32),
                generator.normal(size=(length, 4)).astype(np.float32),
                images.clip(0, 255).astype(np.uint8),
            )
        )
    return episodes


def write_lerobot(
    path: Path, episodes: list[Reference], cameras: str = "image", digests: bool = False, **options: object
) -> Path:
    """Write a LeRobotDataset v3.0 with our own writer, as LeRobot's would be: without digests unless asked for."""
    with LeRobotWriter(path, FPS, cameras=cameras, **options) as writer:  # type: ignore[arg-type]
        for e in episodes:
            writer.add_episode(e.task, e.actions, {STATE: e.states, CAMERA: e.images})
    if not digests:
        (path / DIGESTS_PATH).unlink()
    return path


def write_robomimic(path: Path, episodes: list[Reference], instruction: str | None = None) -> Path:
    """Write robomimic's layout, or LIBERO's given an instruction; demos out of order, actions in double precision."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with h5py.File(path, "w") as file:
        data = file.create_group("data")
        env_args = {"env_name": episodes[0].task, "env_kwargs": {"control_freq": FPS}}
        data.attrs["env_args"] = json.dumps(env_args)
        if instruction is not None:
            data.attrs["problem_info"] = json.dumps({"language_instruction": instruction})
        for number, e in reversed(list(enumerate(episodes))):
            demo = data.create_group(f"demo_{number}")
            demo["actions"] = e.actions.astype(np.float64)
            demo["obs/state"] = e.states.astype(np.float64)
            demo["obs/front_image"] = e.images
        file["mask/train"] = np.array([f"demo_{n}".encode() for n in range(len(episodes)) if n % 2 == 0])
    return path


def write_libero(path: Path, episodes: list[Reference]) -> Path:
    """Write a directory with one file per task, as LIBERO does."""
    for task in sorted({e.task for e in episodes}):
        write_robomimic(path / f"{task}_demo.hdf5", [e for e in episodes if e.task == task], instruction=task)
    return path


def write_zarr(path: Path, episodes: list[Reference], image_dtype: str = "float32", version: Literal[2, 3] = 2) -> Path:
    """Write diffusion_policy's ReplayBuffer, in a directory or a .zip."""
    store = zarr.storage.ZipStore(path, mode="w") if path.suffix == ".zip" else path
    group = zarr.open_group(store, mode="w", zarr_format=version)
    arrays = {
        "data/action": np.concatenate([e.actions for e in episodes]),
        "data/state": np.concatenate([e.states for e in episodes]),
        "data/front": np.concatenate([e.images for e in episodes]).astype(image_dtype),
        "meta/episode_ends": np.cumsum([len(e.actions) for e in episodes]),
    }
    for name, array in arrays.items():
        group.create_array(name, data=array, chunks=(7, *array.shape[1:]))
    if isinstance(store, zarr.storage.ZipStore):
        store.close()
    return path


def write_npz(path: Path, episodes: list[Reference], compressed: bool = False) -> Path:
    """Write a numpy archive, whose members can be memory-mapped unless they are compressed."""
    save = np.savez_compressed if compressed else np.savez
    save(
        path,
        actions=np.concatenate([e.actions for e in episodes]),
        state=np.concatenate([e.states for e in episodes]),
        front_image=np.concatenate([e.images for e in episodes]),
        episode_ends=np.cumsum([len(e.actions) for e in episodes]),
        tasks=np.array([e.task for e in episodes]),
        fps=np.array(FPS),
    )
    return path


WRITERS: dict[str, Callable[[Path, list[Reference]], Path]] = {
    "lerobot-image": lambda path, e: write_lerobot(path / "set", e, "image"),
    "lerobot-video": lambda path, e: write_lerobot(path / "set", e, "video"),
    "robomimic": lambda path, e: write_robomimic(path / "low_dim.hdf5", e),
    "libero": lambda path, e: write_libero(path / "libero_10", e),
    "zarr": lambda path, e: write_zarr(path / "replay.zarr", e),
    "zarr-v3": lambda path, e: write_zarr(path / "replay.zarr", e, "uint8", version=3),
    "zarr-zip": lambda path, e: write_zarr(path / "replay.zarr.zip", e, "uint8"),
    "npz": lambda path, e: write_npz(path / "set.npz", e),
    "npz-compressed": lambda path, e: write_npz(path / "set.npz", e, compressed=True),
}
SEVERAL_TASKS = {"lerobot-image", "lerobot-video", "libero", "npz", "npz-compressed"}
EXACT_IMAGES = set(WRITERS) - {"lerobot-video"}
KNOWS_FPS = set(WRITERS) - {"zarr", "zarr-v3", "zarr-zip"}
