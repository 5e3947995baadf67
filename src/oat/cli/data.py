"""The verbs of demonstrations: collect, inspect, view, convert."""

from functools import partial
from pathlib import Path

import tyro

from oat.data.episodes import CameraStorage, WhenExists
from oat.errors import InvalidOption, UnknownFormat, refuse_unused
from oat.sims.config import CollectConfig

_RENDERED_SIZE = 128


def collect(config: tyro.conf.OmitArgPrefixes[CollectConfig]) -> None:
    """Let a simulator's expert demonstrate tasks; successful episodes become a LeRobotDataset v3.0.

    The same seed gives the same data set, whatever the number of workers. After an interruption the same command
    continues where it was.
    """
    from oat.sims.collect import collect_demonstrations

    collect_demonstrations(config)


def inspect(
    path: tyro.conf.Positional[Path],
    data: Path | None = None,
    beside: tuple[Path, ...] = (),
    subset: str | None = None,
    episodes: str | None = None,
    picture: Path | None = None,
    refinement: Path | None = None,
    verify: bool = False,
    json: bool = False,
) -> None:
    """Describe a data set or a tokenizer as tables and a picture.

    A data set: episodes, ranges, saturation, constants, NaNs. A tokenizer, with --data: error, tokens and bits for
    every prefix on held-out chunks, use of the codebook, speed, beside Bin, FAST and RVQ on the same chunks, and how
    many chunks are unlike those it was fitted to.

    Args:
        path: A data set (LeRobot v3.0 directory, HDF5, zarr ReplayBuffer, .npz), or a tokenizer's checkpoint or run.
        data: For a tokenizer: the demonstrations to hold it against.
        beside: For a tokenizer: others, fitted to the same demonstrations, to show in the same tables.
        subset: For a data set: only this named group of episodes, an HDF5 filter key or a LeRobot split.
        episodes: For a data set: only these episodes, such as 0:50,60.
        picture: Where to write the picture (.png, .pdf or .svg); by default NAME-inspect.png in this directory.
        refinement: For a tokenizer: instead of tables, a picture of a few chunks decoded from 1, 2, 4 and 8 tokens.
        verify: For a data set: read everything in it first, every file and frame, and compare it with its digests.
        json: Print JSON instead of tables.
    """
    if data is not None:
        refuse_unused("a tokenizer", "a data set", subset=subset, episodes=episodes, verify=verify or None)
        if refinement is not None:
            from oat.report.inspect_refinement import inspect_refinement

            inspect_refinement(path, data, refinement)
            return
        from oat.report.inspect_tokenizer import inspect_tokenizer

        inspect_tokenizer(path, data, beside, picture=picture, as_json=json)
        return
    refuse_unused("a data set", "a tokenizer with --data", beside=beside, refinement=refinement)
    from oat.report.inspect_dataset import inspect_dataset

    try:
        if verify:
            from oat.data.verify import verify_dataset

            verify_dataset(path.expanduser())
        inspect_dataset(path, subset=subset, ranges=episodes, picture=picture, as_json=json)
    except UnknownFormat as error:
        from oat.io.checkpoints import checkpoint_kind, find_checkpoint
        from oat.tokenizers import TOKENIZERS

        if checkpoint_kind(find_checkpoint(path)) in TOKENIZERS:
            raise InvalidOption(f"{path} is a tokenizer: say with --data what to hold it against") from error
        raise


def view(
    path: tyro.conf.Positional[Path],
    tokenizer: Path | None = None,
    episodes: str | None = None,
    save: Path | None = None,
) -> None:
    """Show demonstrations, chunks by their first 1 … 8 tokens, or rollouts in Rerun's viewer.

    A data set: actions, states and cameras over steps; with --tokenizer, its chunks as each number of tokens decodes
    them. What oat eval wrote with --videos: films with the predicted paths, and outcomes.

    Args:
        path: A data set in any known format, or the records of an evaluation.
        tokenizer: For a data set: the checkpoint or run of a tokenizer to see it through.
        episodes: For a data set: these episodes, such as 0:50,60; by default the first three.
        save: Write a recording (.rrd) for the viewer, instead of opening it.
    """
    from oat.report.view import view as show

    show(path, tokenizer, episodes, save)


def convert(
    source: tyro.conf.Positional[Path],
    out: tyro.conf.Positional[Path],
    subset: str | None = None,
    episodes: str | None = None,
    cameras: CameraStorage = "image",
    fps: float | None = None,
    exists: WhenExists = "refuse",
    render: tuple[str, ...] | None = None,
    image_size: int | None = None,
) -> None:
    """Convert a data set in any known format to LeRobotDataset v3.0.

    Args:
        source: LeRobot v3.0 directory, HDF5 file or directory of them, zarr ReplayBuffer, or .npz.
        out: The directory to write; it appears when it is complete.
        subset: Only this named group of episodes: an HDF5 filter key or a LeRobot split.
        episodes: Only these episodes, such as 0:50,60.
        cameras: image stores lossless PNG; video stores H.264, which is smaller but not exact.
        fps: Control frequency; needed only where the source does not record it (then 10 is assumed).
        exists: What to do when OUT exists.
        render: Observe demonstrations of robomimic, LIBERO or RoboCasa anew from the simulator states in the files,
            through cameras such as agentview robot0_eye_in_hand, or none; stored observations are not taken over.
        image_size: Height and width of rendered images, by default 128.
    """
    from oat.data.convert import convert_dataset

    reobserve = None
    if render is None:
        refuse_unused("images that are stored", "those of --render", image_size=image_size)
    else:
        from oat.sims.replay import rerender

        reobserve = partial(
            rerender, path=source, cameras=render, image_size=_RENDERED_SIZE if image_size is None else image_size
        )
    convert_dataset(
        source, out, subset=subset, ranges=episodes, cameras=cameras, fps=fps, exists=exists, reobserve=reobserve
    )
