"""Measure how far the same actions from the same states lead apart in robosuite 1.4.0 and 1.5.2.

Three steps, because no environment has both versions. Only the first and the last need this project:

python benchmarks/robosuite_versions.py plan --out out/plan.npz
python benchmarks/robosuite_versions.py play --plan out/plan.npz --out out/1.5.npz
OLD/bin/python benchmarks/robosuite_versions.py play --plan out/plan.npz --out out/1.4.npz
python benchmarks/robosuite_versions.py compare --plan out/plan.npz --one out/1.4.npz --other out/1.5.npz

OLD is an environment with torch, mujoco 3.3.0, robosuite 1.4.0, bddl 1.0.1, easydict, cloudpickle, future, matplotlib,
pyyaml, termcolor, tqdm and, without what it declares, hf-libero 0.1.4. RoboMimic's tasks are acted by our experts,
LIBERO's by smooth random motions; OAT_LIBERO_ASSETS says where LIBERO's meshes are.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

if not __package__:
    sys.path.pop(0)  # run as a script, tokenizers.py beside it would stand for the library of that name

import numpy as np

SUITE = "libero_10"
ENVIRONMENTS = {"lift": "Lift", "can": "PickPlaceCan", "square": "NutAssemblySquare"}
CUBE = ("cube_g0", "cube_g0_vis")
HOLDING = 10  # steps at the end in which nothing is asked for, so that what is let go comes to rest
OPTIONS: dict[str, Any] = {
    "has_renderer": False,
    "has_offscreen_renderer": False,
    "use_camera_obs": False,
    "ignore_done": True,
    "control_freq": 20,
}
NEW_OPTIONS: dict[str, Any] = {"renderer": "mujoco", "lite_physics": False}


def plan(out: Path, episodes: int, steps: int) -> None:
    """Write initial states and actions: of our experts for RoboMimic, smooth random ones for LIBERO."""
    from oat.sims.hand import Manner
    from oat.sims.libero import Libero
    from oat.sims.robomimic import RoboMimic
    from oat.sims.robomimic_experts import EXPERTS

    written: dict[str, np.ndarray] = {}
    robomimic = RoboMimic()
    for task in ENVIRONMENTS:
        env = robomimic.make(task)
        for seed in range(episodes):
            env.reset(seed)
            start = env.simulator_state
            actions = []
            for action in EXPERTS[task](env.env, Manner.draw(seed)):
                actions.append(np.clip(action, -1, 1))
                if env.step(actions[-1].astype(np.float32)).success or len(actions) == 400:
                    break
            still = np.array([0, 0, 0, 0, 0, 0, actions[-1][-1]])
            written[f"robomimic/{task}/{seed}/state"] = start
            written[f"robomimic/{task}/{seed}/actions"] = np.stack([*actions, *[still] * HOLDING])
        if task == "lift":
            written["cube"] = np.array(env.env.sim.model._model.geom(CUBE[0]).size)
    libero = Libero()
    for number, task in enumerate(libero.tasks):
        scene = libero.make(task)
        scene.reset(number)
        key = f"libero/{number}/0"
        written[f"{key}/state"] = scene.simulator_state
        written[f"{key}/actions"] = smooth_actions(number, steps)
        model = scene.env.sim.model
        for fixture in scene.env.fixtures:
            body = model.body_name2id(fixture.root_body)
            written[f"{key}/body/{fixture.root_body}"] = np.append(model.body_pos[body], model.body_quat[body])
    out.parent.mkdir(parents=True, exist_ok=True)
    np.savez(out, allow_pickle=False, **written)


def smooth_actions(seed: int, steps: int) -> np.ndarray:
    """Return motions that wander down to the table and back, with a gripper that opens and closes."""
    random = np.random.default_rng(seed)
    times = np.arange(steps)[:, None] / steps
    waves = sum(
        random.normal(0, 0.5 / order, 7) * np.sin(2 * np.pi * (order * times + random.random(7))) for order in (1, 2, 4)
    )
    waves[:, 2] -= 0.5 * np.sin(2 * np.pi * times[:, 0])  # down first
    waves[:, 3:6] *= 0.3
    waves[:, 6] = np.sign(waves[:, 6])
    return np.clip(waves, -1, 1)


def play(plan: Path, out: Path) -> None:
    """Play all actions in the robosuite that is installed, and write where hand and objects went."""
    import robosuite

    planned = np.load(plan)
    written: dict[str, np.ndarray] = {"version": np.array(robosuite.__version__)}
    envs: dict[str, Any] = {}
    for key in sorted(name.removesuffix("/actions") for name in planned if name.endswith("/actions")):
        benchmark, task, _ = key.split("/")
        if task not in envs:
            envs = {task: build(robosuite, benchmark, task, planned)}
        env = envs[task]
        begin(env, key, planned)
        path = [observe(env)]
        success = []
        for action in planned[f"{key}/actions"]:
            env.step(action)
            path.append(observe(env))
            success.append(bool(env._check_success()))
        written[f"{key}/path"] = np.stack(path)
        written[f"{key}/success"] = np.array(success)
    np.savez(out, allow_pickle=False, **written)


def build(robosuite: ModuleType, benchmark: str, task: str, planned: Any) -> Any:
    """Build an environment in either version of robosuite, with the controller that both have."""
    options = dict(OPTIONS)
    if robosuite.__version__.startswith("1.4"):
        options["controller_configs"] = robosuite.load_controller_config(default_controller="OSC_POSE")
    else:
        arm = robosuite.load_part_controller_config(default_controller="OSC_POSE")
        arm |= {"input_ref_frame": "world", "gripper": {"type": "GRIP"}}
        options |= NEW_OPTIONS | {"controller_configs": {"type": "BASIC", "body_parts": {"right": arm}}}
    if benchmark == "libero":
        return build_libero(int(task), options)
    env = robosuite.make(ENVIRONMENTS[task], robots="Panda", **options)
    if task == "lift":  # its size is drawn
        model = ElementTree.fromstring(env.model.get_xml())
        for geom in model.iter("geom"):
            if geom.get("name") in CUBE:
                geom.set("size", " ".join(map(str, planned["cube"])))
        env.reset_from_xml_string(ElementTree.tostring(model, "unicode"))
    env.hard_reset = False
    return env


def build_libero(number: int, options: dict[str, Any]) -> Any:
    """Build one of LIBERO's ten tasks, whose package asks a question where it finds no settings."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.yaml").touch()
        os.environ["LIBERO_CONFIG_PATH"] = folder
        import libero.libero
    from libero.libero.benchmark import task_maps
    from libero.libero.envs import TASK_MAPPING, bddl_utils

    vars(libero.libero)["_assets_path_cache"] = os.environ["OAT_LIBERO_ASSETS"]
    task = list(task_maps[SUITE].values())[number]
    file = str(Path(str(libero.libero.__file__)).parent / "bddl_files" / SUITE / task.bddl_file)
    problem = bddl_utils.get_problem_info(file)["problem_name"]
    return TASK_MAPPING[problem](file, robots=["Panda"], initialization_noise=None, hard_reset=False, **options)


def begin(env: Any, key: str, planned: Any) -> None:
    """Begin an episode at its planned state, with furniture where it stood."""
    env.reset()
    for name in planned:
        if name.startswith(f"{key}/body/"):
            body = env.sim.model.body_name2id(name.rpartition("/")[2])
            env.sim.model.body_pos[body] = planned[name][:3]
            env.sim.model.body_quat[body] = planned[name][3:]
    env.sim.set_state_from_flattened(planned[f"{key}/state"])
    env.sim.forward()
    robot = env.robots[0]
    controller = robot.controller if hasattr(robot, "controller") else robot.part_controllers["right"]
    controller.update_initial_joints(env.sim.data.qpos[robot._ref_joint_pos_indexes[:7]])
    gripper = robot.gripper["right"] if isinstance(robot.gripper, dict) else robot.gripper
    gripper.current_action = np.zeros_like(gripper.current_action)
    env.sim.data.qacc_warmstart[:] = 0


def observe(env: Any) -> np.ndarray:
    """Return the positions of the hand and of every free object."""
    site = env.robots[0].eef_site_id
    hand = env.sim.data.site_xpos[site["right"] if isinstance(site, dict) else site]
    model = env.sim.model._model
    free = model.jnt_qposadr[model.jnt_type == 0]
    return np.stack([np.array(hand), *(np.array(env.sim.data.qpos[start : start + 3]) for start in free)])


def compare(plan: Path, one: Path, other: Path) -> None:
    """Print how far the hand and the farthest object are apart after some steps, and whether successes agree."""
    planned = np.load(plan)
    first = np.load(one)
    second = np.load(other)
    print_line(f"robosuite {first['version']} and {second['version']}: median (largest) distance in mm\n")
    print_line("| task | episodes | hand after 1 step | 10 | 40 | last | objects, last | success in both / either |")
    print_line("|---|---|---|---|---|---|---|---|")
    keys = sorted(name.removesuffix("/actions") for name in planned if name.endswith("/actions"))
    for task in dict.fromkeys(key.rpartition("/")[0] for key in keys):
        mine = [key for key in keys if key.startswith(f"{task}/")]
        apart = [1000 * np.linalg.norm(first[f"{key}/path"] - second[f"{key}/path"], axis=-1) for key in mine]
        cells = [spread([distance[step, 0] for distance in apart]) for step in (1, 10, 40, -1)]
        cells.append(spread([distance[-1, 1:].max() for distance in apart]))
        solved = [(first[f"{key}/success"].any(), second[f"{key}/success"].any()) for key in mine]
        cells.append(f"{sum(all(pair) for pair in solved)} / {sum(any(pair) for pair in solved)}")
        print_line(f"| {task} | {len(mine)} | {' | '.join(cells)} |")


def spread(values: list[float]) -> str:
    """Return the median and the largest value in millimetres."""
    return f"{np.median(values):.3f} ({max(values):.3f})"


def print_line(text: str) -> None:
    """Write one line of the table."""
    sys.stdout.write(f"{text}\n")


VERBS: dict[str, Callable[..., None]] = {"plan": plan, "play": play, "compare": compare}


def main() -> None:
    """Run one of the three steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    planning = verbs.add_parser("plan")
    planning.add_argument("--out", type=Path, required=True)
    planning.add_argument("--episodes", type=int, default=10)
    planning.add_argument("--steps", type=int, default=200)
    playing = verbs.add_parser("play")
    playing.add_argument("--plan", type=Path, required=True)
    playing.add_argument("--out", type=Path, required=True)
    comparing = verbs.add_parser("compare")
    for name in ("plan", "one", "other"):
        comparing.add_argument(f"--{name}", type=Path, required=True)
    options = vars(parser.parse_args())
    VERBS[options.pop("verb")](**options)


if __name__ == "__main__":
    main()
