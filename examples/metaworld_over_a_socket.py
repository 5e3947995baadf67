"""Drive a MetaWorld robot through a policy server over a real socket, beside the same policy in-process.

python examples/metaworld_over_a_socket.py runs/policy --task drawer-open --episodes 20

Three ways, from the same initial conditions and with the same random numbers:
in-process   a chunk is predicted, 16 of its actions are executed, and so on
served       the same through the server; the robot waits for every chunk, so its actions are the very same
overlapped   the next chunk is inferred while the current one executes at 80 Hz, and takes over from it gradually
"""

import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console

from oat.data.lerobot import LeRobotWriter
from oat.export.loading import load_predictor
from oat.interfaces import Observation
from oat.policies import Noise
from oat.policies.predictor import BasePredictor
from oat.robots.loop import Limits, LoopConfig, drive
from oat.robots.simulated import SimulatedRobot
from oat.serving.client import PolicyClient, RemotePolicy, stack_history
from oat.sims import load_simulator

EXECUTE = 16
Act = Callable[[Mapping[str, np.ndarray]], np.ndarray]


def main(
    policy: tyro.conf.Positional[Path],
    task: str,
    episodes: int = 20,
    max_steps: int = 500,
    record: Path | None = None,
) -> None:
    """Compare the three ways.

    Args:
        policy: The policy's checkpoint or run, or what `oat export` wrote.
        task: A task that it knows.
        episodes: How many episodes each way drives.
        max_steps: Actions after which an episode has failed.
        record: Where to write what the overlapped robot saw and did, as a LeRobotDataset v3.0.
    """
    simulator = load_simulator("metaworld")
    local = load_predictor(policy)
    robot = SimulatedRobot(simulator.make(task))
    conditions = simulator.conditions(task, "selection")[:episodes]
    writer = None if record is None else LeRobotWriter(record, simulator.fps)
    solved = {"in-process": 0, "served": 0, "overlapped": 0}
    same = 0
    with served(policy) as url, PolicyClient(url) as client:
        remote = RemotePolicy(client, task, EXECUTE)
        for condition in conditions:
            success, first = run(robot, condition, in_process(local, task, condition), max_steps)
            solved["in-process"] += success
            remote.reset(condition)
            success, second = run(robot, condition, remote.act, max_steps)
            solved["served"] += success
            same += first.shape == second.shape and bool((first == second).all())
            robot.reset(condition)
            config = LoopConfig(simulator.fps, EXECUTE, max_steps=max_steps, seed=condition, limits=Limits(-1, 1))
            report = drive(robot, client, task, config, lambda: robot.success, writer)
            solved["overlapped"] += robot.success
            Console().print(f"condition {condition}: {solved}, overlapped: {report}")
    if writer is not None:
        writer.finish()
    Console().print(f"solved of {len(conditions)}: {solved}; served actions the very same in {same}")


def run(robot: SimulatedRobot, condition: int, act: Act, max_steps: int) -> tuple[bool, np.ndarray]:
    """Run one episode step by step; return whether it succeeded, and its actions."""
    robot.reset(condition)
    actions: list[np.ndarray] = []
    while len(actions) < max_steps and not robot.success:
        actions.append(act(robot.observe()))
        robot.act(actions[-1])
    return robot.success, np.stack(actions)


def in_process(policy: BasePredictor, task: str, seed: int) -> Act:
    """Return a function that executes a policy with a receding horizon, without a server."""
    frames: deque[Mapping[str, np.ndarray]] = deque(maxlen=policy.observed.obs_horizon)
    queue: deque[np.ndarray] = deque()
    chunks = iter(range(10**9))

    def act(frame: Mapping[str, np.ndarray]) -> np.ndarray:
        frames.append(frame)
        if not queue:
            values = {key: value[None] for key, value in stack_history(frames).items()}
            chunk = policy.predict_chunk(Observation(values, (task,)), noise=Noise.of([seed], [next(chunks)]))
            queue.extend(chunk.actions[0, :EXECUTE].numpy())
        return queue.popleft()

    return act


@contextmanager
def served(policy: Path) -> Iterator[str]:
    """Yield the address of an `oat serve` that runs as long as the block."""
    command = [sys.executable, "-c", "from oat.cli import main; main()", "serve", str(policy), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            # With port 0 the system chooses a free one, which the server prints.
            (url,) = re.findall(r"ws://\S+", server.stdout.readline())
            yield url
        finally:
            server.terminate()


if __name__ == "__main__":
    tyro.cli(main)
