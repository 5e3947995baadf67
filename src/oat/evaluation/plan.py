"""Plan which episodes an evaluation consists of, and check that the policy fits the benchmark at all."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

import oat
from oat.data.episodes import IMAGES
from oat.errors import InvalidOption
from oat.evaluation.config import EvalConfig
from oat.evaluation.decoding_rules import choose_decodings, executing
from oat.evaluation.protocol import find_protocol
from oat.evaluation.records import EpisodeKey
from oat.evaluation.rollout import Episode
from oat.interfaces import Simulator
from oat.io.checkpoints import find_checkpoint, fingerprint
from oat.policies import Policy
from oat.protocol import Protocol


@dataclass(frozen=True)
class Plan:
    """Hold all episodes of an evaluation, task after task, in the order in which they are begun."""

    protocol: Protocol
    episodes: Sequence[Episode]


def plan_evaluation(config: EvalConfig, policy: Policy, simulator: Simulator) -> Plan:
    """Return the episodes to run, and check that the policy fits before anything is started.

    Every task, decoding and policy meets the same initial conditions, which repeat only where a task has too few.
    """
    delay = config.delay or None
    protocol = find_protocol(config.sim, config.execute, _cameras(policy), _image_size(policy), delay)
    tasks = config.tasks or _known_tasks(policy, simulator)
    _check_fit(policy, simulator, protocol, tasks)
    checkpoint = fingerprint(find_checkpoint(config.policy))
    versions = f"oat {oat.__version__}, torch {torch.__version__}, {simulator.version}"
    asked = choose_decodings(config, policy, config.num_tokens, config.stop)
    decodings = [executing(each, policy, protocol.execute) for each in asked]
    episodes = []
    for task in tasks:
        conditions = simulator.conditions(task, config.split)
        for decoding in decodings:
            first = config.episodes * config.first_seed
            for number in range(first, first + config.episodes * config.seeds):
                repeat, place = divmod(number, len(conditions))
                key = EpisodeKey(
                    protocol=protocol.hash,
                    method=policy.method,
                    training_seed=policy.training_record.seed or 0,
                    checkpoint=checkpoint,
                    decoding=decoding.name,
                    task=task,
                    split=config.split,
                    condition=conditions[place],
                    repeat=repeat,
                )
                episode = Episode(
                    key=key,
                    decoding=decoding,
                    instruction=_instruction(policy, simulator, task),
                    evaluation_seed=number // config.episodes,
                    demonstrator=simulator.who_demonstrated(policy.training_record.demonstrator),
                    versions=versions,
                    film=number - first < config.videos,
                )
                episodes.append(episode)
    return Plan(protocol, episodes)


def _cameras(policy: Policy) -> tuple[str, ...]:
    # LeRobot's sets with a single camera call it observation.image.
    return tuple(key.removeprefix(IMAGES).removeprefix("observation.") for key in policy.context.config.cameras)


def _image_size(policy: Policy) -> int | None:
    """Return the size of the images that the policy sees, if it sees any."""
    sizes = {side for size in policy.context.config.camera_sizes for side in size}
    if len(sizes) > 1:
        raise InvalidOption(f"simulators render square images of one size, the policy sees {sorted(sizes)} pixels")
    return sizes.pop() if sizes else None


def _instruction(policy: Policy, simulator: Simulator, task: str) -> str:
    """Return the task as the policy knows it: where there is only one, whatever its demonstrations call it."""
    only = len(simulator.tasks) == len(policy.context.task.tasks) == 1
    return policy.context.task.tasks[0] if only else simulator.instruction(task)


def _known_tasks(policy: Policy, simulator: Simulator) -> tuple[str, ...]:
    """Return the benchmark's tasks that the policy was trained on."""
    trained = policy.context.task.tasks
    known = tuple(task for task in simulator.tasks if _instruction(policy, simulator, task) in trained)
    if not known:
        raise InvalidOption(f"the policy was trained on {', '.join(trained)}, which are not tasks of {simulator.name}")
    return known


def _check_fit(policy: Policy, simulator: Simulator, protocol: Protocol, tasks: Sequence[str]) -> None:
    """Raise InvalidOption or UnknownName where the policy cannot act in these tasks by this protocol."""
    for task in tasks:
        simulator.check_task(task)
    policy.context.task.find([_instruction(policy, simulator, task) for task in tasks])
    space = policy.space
    context = policy.context.config
    if space.action_dim != len(simulator.action_names):
        taken = len(simulator.action_names)
        raise InvalidOption(
            f"the policy gives {space.action_dim}-D actions, {simulator.name} takes {taken}-D: name the benchmark of "
            f"its demonstrations with --sim, or train on demonstrations of {simulator.name}"
        )
    if context.obs_horizon != protocol.obs_horizon:
        raise InvalidOption(f"the policy sees {context.obs_horizon} frames, the protocol gives {protocol.obs_horizon}")
    if space.action_horizon < protocol.execute:
        raise InvalidOption(
            f"the policy predicts {space.action_horizon} actions, fewer than the {protocol.execute} to execute; "
            f"--execute {space.action_horizon} would be another protocol"
        )
    if space.action_horizon < protocol.execute + protocol.delay:
        raise InvalidOption(
            f"the policy predicts {space.action_horizon} actions, fewer than the {protocol.execute} to execute and "
            f"the {protocol.delay} of the delay after them"
        )
