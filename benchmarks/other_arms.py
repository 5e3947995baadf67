"""Demonstrate robosuite's tasks with several arms, and measure how well the tokenizer `robosuite` fits each of them.

OMP_NUM_THREADS=1 python benchmarks/other_arms.py collect robosuite-demos.npz [--episodes 20]
OMP_NUM_THREADS=1 python benchmarks/other_arms.py measure [--arms Panda UR5e IIWA Kinova3 Sawyer] [--episodes 4]

The tokenizer that comes with the package is fitted to what `collect` writes (scripts/make-tokenizers.sh).
praxis-robosuite has no arm but the Panda. The distribution robosuite of the same version has the others: install it
without what it declares into a folder of its own, and name that in PYTHONPATH.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

from itertools import islice, product
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console

import oat
from oat.io.atomic import staged_file
from oat.io.progress import progress_bar
from oat.sims.robomimic import ENVIRONMENTS, MAX_STEPS, RoboMimicEnv
from oat.sims.robomimic_experts import EXPERTS
from oat.sims.robosuite import arm_controller, import_robosuite
from oat.sims.scripted import ScriptedExpert
from oat.tables.markdown import to_markdown
from oat.tables.table import Table

FITTED = ("Panda", "UR5e", "IIWA", "Kinova3")
"""Arms that our scripts can use: with a Sawyer they run into a joint's limit, a Jaco's three fingers close too late."""
_MOST_ATTEMPTS = 4  # times the episodes that are wanted: a script that fails more often is broken for that arm
_FIRST_SEED = 100  # attempts that are kept never begin as those that are measured


def collect(out: tyro.conf.Positional[Path], arms: tuple[str, ...] = FITTED, episodes: int = 20) -> None:
    """Write the actions of successful episodes of Lift, Can and Square with each arm, as an archive of numpy arrays.

    Args:
        out: The archive to write; its name ends in .npz.
        arms: robosuite's names of them.
        episodes: Episodes of each arm and task.
    """
    made = list[tuple[str, np.ndarray]]()
    told = list[str]()
    with progress_bar("collecting", len(arms) * len(EXPERTS) * episodes) as progress:
        for arm, task in product(arms, EXPERTS):
            expert = make_expert(arm, task)
            attempts = (expert.demonstrate(_FIRST_SEED + number) for number in range(_MOST_ATTEMPTS * episodes))
            kept = list(islice((each.actions for each in attempts if each.success), episodes))
            told += [] if len(kept) == episodes else [f"{arm} {task}: only {len(kept)}"]
            made += [(f"{task}, {arm}", actions) for actions in kept]
            progress.advance(episodes, f"{arm} {task}")
    tasks, actions = zip(*made)
    ends = np.cumsum([len(each) for each in actions])
    with staged_file(out) as staging, staging.open("wb") as file:
        np.savez(file, actions=np.concatenate(actions), episode_ends=ends, tasks=np.array(tasks), fps=20.0)
    Console().print(f"wrote {len(made)} episodes to {out}" + "".join(f"; {each}" for each in told), highlight=False)


def make_expert(arm: str, task: str) -> ScriptedExpert:
    """Return the script of a task for an arm; each attempt is determined by its seed."""
    robosuite = import_robosuite()
    options = {
        "robots": arm,
        "controller_configs": arm_controller(robosuite),
        "control_freq": 20,
        "lite_physics": False,
    }
    env = RoboMimicEnv(ENVIRONMENTS[task], options)
    return ScriptedExpert(env, env.reset, EXPERTS[task], 0.0, MAX_STEPS)


def measure(arms: tuple[str, ...] = (*FITTED, "Sawyer"), episodes: int = 4) -> None:
    """Print the errors of every arm that lifts robosuite's cube; whole episodes, each chunk once.

    Args:
        arms: robosuite's names of them.
        episodes: Attempts of each.
    """
    columns = ("arm", "succeeded", "chunks", "D_1", "D_2", "D_4", "D_8", "clipped, %")
    table = Table("The tokenizer robosuite on several arms", columns, tuple(measure_arm(arm, episodes) for arm in arms))
    Console(width=120).print(to_markdown(table), markup=False, highlight=False)


def measure_arm(arm: str, episodes: int) -> tuple[str, ...]:
    """Return an arm's row: the mean squared errors of its chunks decoded from 1, 2, 4 and 8 tokens."""
    expert = make_expert(arm, "lift")
    made = [expert.demonstrate(seed) for seed in range(episodes)]
    tokenizer = oat.get_tokenizer("robosuite")
    chunks = np.concatenate([windows(each.actions, tokenizer.action_horizon) for each in made])
    tokens = tokenizer.encode(chunks, measure=True)
    errors = [np.mean((np.asarray(tokenizer.decode(tokens[:, :k])) - chunks) ** 2) for k in (1, 2, 4, 8)]
    succeeded = f"{sum(each.success for each in made)} of {episodes}"
    clipped = 100 * float(np.asarray(tokens.clipped).mean())
    return (arm, succeeded, str(len(chunks)), *(f"{error:.4f}" for error in errors), f"{clipped:.1f}")


def windows(actions: np.ndarray, horizon: int) -> np.ndarray:
    """Return every chunk of an episode; the last action is repeated past its end."""
    padded = np.concatenate([actions, np.repeat(actions[-1:], horizon - 1, axis=0)])
    return np.lib.stride_tricks.sliding_window_view(padded, horizon, axis=0).transpose(0, 2, 1)


if __name__ == "__main__":
    tyro.extras.subcommand_cli_from_dict({"collect": collect, "measure": measure})
