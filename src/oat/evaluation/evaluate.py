"""Behind `oat eval` and `oat compare`: plan the episodes, run those that are missing, show the tables."""

import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console

import oat
from oat.atomic import exclusive
from oat.checkpoint import CONFIG_FILE
from oat.errors import InvalidOption, unknown_name
from oat.evaluation.config import EvalConfig
from oat.evaluation.protocol import Protocol, find_protocol
from oat.evaluation.records import EpisodeKey, EpisodeRecord, RecordLog, read_records
from oat.evaluation.rollout import Episode, run_episodes
from oat.evaluation.tables import comparison_table, summarize, summary_table
from oat.interfaces import Simulator
from oat.policies import AutoregressivePolicy, Decoding, Denoising, Policy, TokenDecoding, load_policy
from oat.progress import progress_bar
from oat.sims import load_simulator

RECORDS_FILE = "records.jsonl"
_IMAGES = "observation.images."


def evaluate_policy(config: EvalConfig) -> None:
    """Run every episode that the records do not hold yet, and print the table of all."""
    torch.set_num_threads(1)
    simulator, policy = load_simulator(config.sim), load_policy(config.policy)
    config = replace(config, tasks=config.tasks or _known_tasks(policy, simulator))
    protocol = find_protocol(config.sim, config.execute, _cameras(policy), _image_size(policy))
    _check_fit(policy, simulator, protocol, config.tasks)
    versions = f"oat {oat.__version__}, torch {torch.__version__}, {simulator.version}"
    config.out.mkdir(parents=True, exist_ok=True)
    with exclusive(config.out, f"evaluating into {config.out}"):
        log = RecordLog(config.out / RECORDS_FILE)
        for decoding in _decodings(config, policy):
            plan = plan_episodes(config, policy, simulator, protocol, decoding)
            missing = [(episode, seed) for episode, seed in plan if episode.key not in log.finished]
            _run(config, policy, decoding, protocol, missing, log, simulator.expert_kind, versions)
        log.close()
    Console().print(summary_table(summarize(log.records)))


def compare(first: Path, second: Path, first_policy: str | None = None, second_policy: str | None = None) -> None:
    """Print the second's records against the first's."""
    sides = (_choose(path, policy) for path, policy in ((first, first_policy), (second, second_policy)))
    Console().print(comparison_table(*sides))


def _choose(path: Path, policy: str | None) -> list[EpisodeRecord]:
    """One policy's records; the only one's, unless it is named."""
    records = list(read_records(path / RECORDS_FILE if path.is_dir() else path))
    names = list(dict.fromkeys(record.key.policy for record in records))
    if policy is None and len(names) != 1:
        raise InvalidOption(f"{path} holds several policies ({', '.join(names) or 'none'}); name the one to compare")
    if policy is not None and policy not in names:
        raise unknown_name(f"policy in {path}", policy, names)
    return [record for record in records if policy in (None, record.key.policy)]


def method_name(policy: Policy) -> str:
    """As tables call it."""
    if not isinstance(policy, AutoregressivePolicy):
        return "dp"
    tokenizer = policy.tokenizer
    unordered = tokenizer.prefix_decodable and tokenizer.config.objective.keep == "full"
    return tokenizer.kind + "×" * unordered


def decoding_name(decoding: Decoding) -> str:
    """Short and unique."""
    if isinstance(decoding, Denoising):
        return f"{decoding.steps} steps"
    usual, length = TokenDecoding(), f"K={decoding.num_tokens or 'all'}"
    if decoding.greedy:
        return f"{length} greedy"
    temperature = "" if decoding.temperature == usual.temperature else f" T={decoding.temperature:g}"
    return length + temperature + ("" if decoding.top_k == usual.top_k else f" top-{decoding.top_k or 'all'}")


def plan_episodes(
    config: EvalConfig, policy: Policy, simulator: Simulator, protocol: Protocol, decoding: Decoding
) -> list[tuple[Episode, int]]:
    """All episodes with their evaluation seeds; conditions repeat only when a task has too few of them."""
    plan = []
    checkpoint, training_seed = _fingerprint(config.policy), int(policy.trained_on.get("seed", 0))
    for task in config.tasks:
        conditions = simulator.conditions(task, config.split)
        for number in range(config.episodes * config.seeds):
            repeat, place = divmod(number, len(conditions))
            key = EpisodeKey(
                protocol=protocol.hash,
                method=method_name(policy),
                training_seed=training_seed,
                checkpoint=checkpoint,
                decoding=decoding_name(decoding),
                task=task,
                condition=conditions[place],
                repeat=repeat,
            )
            plan.append((Episode(key, _instruction(policy, simulator, task)), number // config.episodes))
    return plan


def _run(
    config: EvalConfig,
    policy: Policy,
    decoding: Decoding,
    protocol: Protocol,
    missing: Sequence[tuple[Episode, int]],
    log: RecordLog,
    data_source: str,
    versions: str,
) -> None:
    seeds = {episode.key: seed for episode, seed in missing}
    begin, done, solved = time.perf_counter(), 0, 0
    with progress_bar(f"{method_name(policy)} {decoding_name(decoding)}", len(missing)) as bar:

        def finish(record: EpisodeRecord) -> None:
            nonlocal done, solved
            log.append(record)
            done, solved = done + 1, solved + record.success
            rate = done / (time.perf_counter() - begin)
            bar.advance(1, f"{solved} of {done} solved · {rate:.1f} episodes/s")

        run_episodes(
            policy,
            decoding,
            protocol,
            [episode for episode, _ in missing],
            lambda record: finish(replace(record, evaluation_seed=seeds[record.key])),
            config.workers,
            data_source,
            versions,
        )


def _decodings(config: EvalConfig, policy: Policy) -> list[Decoding]:
    if not isinstance(policy, AutoregressivePolicy):
        if config.num_tokens:
            raise InvalidOption("a diffusion policy generates no tokens: leave out --num-tokens")
        return [Denoising(config.denoising_steps)]
    decodings: list[Decoding] = [
        TokenDecoding(count, config.temperature, config.top_k or None, config.greedy)
        for count in config.num_tokens or (None,)
    ]
    for decoding in decodings:
        policy.check_decoding(decoding)
    return decodings


def _cameras(policy: Policy) -> tuple[str, ...]:
    return tuple(key.removeprefix(_IMAGES) for key in policy.context.config.cameras)


def _image_size(policy: Policy) -> int | None:
    """Of the cameras that the policy sees, if it sees any."""
    sizes = {side for size in policy.context.config.camera_sizes for side in size}
    if len(sizes) > 1:
        raise InvalidOption(f"simulators render square images of one size, the policy sees {sorted(sizes)} pixels")
    return sizes.pop() if sizes else None


def _instruction(policy: Policy, simulator: Simulator, task: str) -> str:
    """The task as the policy knows it: where there is only one, whatever its demonstrations call it."""
    only = len(simulator.tasks) == len(policy.context.task.tasks) == 1
    return policy.context.task.tasks[0] if only else task


def _known_tasks(policy: Policy, simulator: Simulator) -> tuple[str, ...]:
    """The benchmark's tasks that the policy was trained on."""
    trained = policy.context.task.tasks
    known = tuple(task for task in simulator.tasks if _instruction(policy, simulator, task) in trained)
    if not known:
        raise InvalidOption(f"the policy was trained on {', '.join(trained)}, which are no tasks of {simulator.name}")
    return known


def _check_fit(policy: Policy, simulator: Simulator, protocol: Protocol, tasks: Sequence[str]) -> None:
    """Before any process is started."""
    for task in tasks:
        if task not in simulator.tasks:
            raise unknown_name(f"{simulator.name} task", task, simulator.tasks)
    policy.context.task.find([_instruction(policy, simulator, task) for task in tasks])
    if policy.space.action_dim != len(simulator.action_names):
        taken = len(simulator.action_names)
        raise InvalidOption(f"the policy gives {policy.space.action_dim}-D actions, {simulator.name} takes {taken}-D")
    if policy.context.config.obs_horizon != protocol.obs_horizon:
        raise InvalidOption(
            f"the policy sees {policy.context.config.obs_horizon} frames, the protocol gives {protocol.obs_horizon}"
        )


def _fingerprint(path: Path) -> str:
    folder = path if (path / CONFIG_FILE).exists() else path / "best"
    return str(json.loads((folder / CONFIG_FILE).read_text())["weights_sha256"])[:12]
