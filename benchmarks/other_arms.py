"""How well the tokenizer `robosuite` that comes with the package fits arms that it was not fitted to.

OMP_NUM_THREADS=1 python benchmarks/other_arms.py [--arms Panda Sawyer UR5e IIWA Kinova3] [--episodes 4]

Each arm lifts robosuite's cube by our script. Its chunks are encoded and decoded, whole episodes only, each chunk once.
praxis-robosuite has no arm but the Panda. The distribution robosuite of the same version has the others: install it
without what it declares into a folder of its own, and name that in PYTHONPATH.
"""

import sys

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

import numpy as np
import tyro
from rich.console import Console

import oat
from oat.sims.robomimic import MAX_STEPS, RoboMimicEnv
from oat.sims.robomimic_experts import EXPERTS
from oat.sims.robosuite import arm_controller, import_robosuite
from oat.sims.scripted import ScriptedExpert
from oat.tables.markdown import to_markdown
from oat.tables.table import Table


def main(arms: tuple[str, ...] = ("Panda", "Sawyer", "UR5e", "IIWA", "Kinova3"), episodes: int = 4) -> None:
    """Print a row for every arm.

    Args:
        arms: robosuite's names of them.
        episodes: Attempts of each.
    """
    columns = ("arm", "succeeded", "chunks", "D_1", "D_2", "D_4", "D_8", "clipped, %")
    table = Table("The tokenizer robosuite on other arms", columns, tuple(measure(arm, episodes) for arm in arms))
    Console(width=120).print(to_markdown(table), markup=False, highlight=False)


def measure(arm: str, episodes: int) -> tuple[str, ...]:
    """Return an arm's row: the mean squared errors of its chunks decoded from 1, 2, 4 and 8 tokens."""
    robosuite = import_robosuite()
    options = {"robots": arm, "controller_configs": arm_controller(robosuite), "control_freq": 20}
    env = RoboMimicEnv("Lift", options)
    expert = ScriptedExpert(env, env.reset, EXPERTS["lift"], 0.0, MAX_STEPS)
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
    tyro.cli(main)
