"""Run `oat eval` and `oat compare`: the episodes that are missing, then the tables."""

import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from oat.errors import InvalidOption, SimulatorError, unknown_name
from oat.evaluation.comparisons import comparison_table
from oat.evaluation.config import EvalConfig, Measure
from oat.evaluation.plan import Plan, plan_evaluation
from oat.evaluation.records import RECORDS_FILE, EpisodeKey, EpisodeRecord, RecordLog, find_records, read_records
from oat.evaluation.rollout import Episode, Rollout
from oat.evaluation.summaries import by_policy, check_run_alike, summarize
from oat.evaluation.tables import summary_table
from oat.evaluation.workers.pool import EnvironmentPool, Transport
from oat.evaluation.workers.processes import LocalProcesses
from oat.evaluation.workers.ray import RayActors
from oat.evaluation.workers.worker import make_environment
from oat.io import cluster
from oat.io.atomic import staged_file
from oat.io.locks import exclusive
from oat.io.progress import Progress, progress_bar
from oat.policies import Policy, load_policy
from oat.protocol import Protocol
from oat.sims import find_simulator, load_simulator
from oat.tables.terminal import to_terminal

VIDEOS_FOLDER = "videos"


def evaluate_policy(config: EvalConfig) -> None:
    """Run every episode that the records do not hold yet, and print the table of all."""
    torch.set_num_threads(1)  # the other cores belong to the simulators' processes
    policy = load_policy(config.policy)
    plan = plan_evaluation(config, policy, load_simulator(config.sim))
    with exclusive(config.out, f"evaluating into {config.out}"):
        ledger = Ledger(config.out)
        try:
            # Before anything is run: a table of all records could not be printed at the end.
            check_run_alike([*(record.key for record in ledger.log.records), plan.episodes[0].key])
            _run(config, policy, plan, ledger)
        finally:
            ledger.log.close()
    Console().print(to_terminal(summary_table(summarize(ledger.log.records))))


def _run(config: EvalConfig, policy: Policy, plan: Plan, ledger: "Ledger") -> None:
    """Run the episodes of the plan that are missing, and say on Ctrl-C how many are recorded."""
    missing = [episode for episode in plan.episodes if ledger.lacks(episode)]
    if not missing:
        return
    counted = {episode.key for episode in plan.episodes}
    earlier = [record for record in ledger.log.records if record.key in counted]
    try:
        with (
            progress_bar("episodes", len(plan.episodes), len(plan.episodes) - len(missing)) as bar,
            _open_pool(config, plan.protocol) as pool,
        ):
            tally = _Tally(bar, len(earlier), sum(record.success for record in earlier))

            def finish(record: EpisodeRecord, video: bytes | None) -> None:
                tally.count(record, is_new=ledger.enter(record, video))

            Rollout(policy, pool, config.batch, finish, plan.protocol).run(missing)
    except KeyboardInterrupt as interrupt:
        done = len(counted & {record.key for record in read_records(ledger.log.path)})  # one may just have been written
        raise KeyboardInterrupt(
            f"interrupted; {done} of {len(counted)} episodes are recorded in {config.out}, "
            "and the same command continues there"
        ) from interrupt


@contextmanager
def _open_pool(config: EvalConfig, protocol: Protocol) -> Iterator[EnvironmentPool[Any]]:
    """Yield environments in processes of this machine or of a Ray cluster, which end with the context."""
    # The class goes along, because a spawned process does not know simulators that were registered in this one.
    make = partial(make_environment, simulator=find_simulator(config.sim))
    with ExitStack() as stack:
        transport: Transport[Any]
        if config.backend == "ray":
            ray = stack.enter_context(cluster.connect(config.address))
            processes = cluster.count_processes(ray, config.workers)
            transport = RayActors(ray, protocol, make)
        else:
            processes = config.workers or os.cpu_count() or 1
            transport = LocalProcesses(protocol, make)
        # Twice as many slots as chunks in a batch: while half of the episodes wait for one, the others act.
        slots = max(2, math.ceil(2 * config.batch / processes))
        pool: EnvironmentPool[Any] = EnvironmentPool(transport, processes, slots)
        stack.callback(pool.close)
        yield pool


class Ledger:
    """Keep what an evaluation leaves behind: records, and the videos of some episodes."""

    def __init__(self, folder: Path) -> None:
        self.log = RecordLog(folder / RECORDS_FILE)
        self._videos = folder / VIDEOS_FOLDER

    def video_path(self, key: EpisodeKey) -> Path:
        """Return where the video of an episode is, or would be."""
        return self._videos / f"{key.file_name}.mp4"

    def lacks(self, episode: Episode) -> bool:
        """Return whether an episode is yet to be run, or to be run again because it was recorded, but not filmed."""
        return episode.key not in self.log.finished or (episode.film and not self.video_path(episode.key).exists())

    def enter(self, record: EpisodeRecord, video: bytes | None) -> bool:
        """Keep an episode, and return whether it was not recorded before."""
        is_new = record.key not in self.log.finished
        if not is_new:
            self._check_repeats(record)
        # The video comes first: an evaluation that resumes finds the record only where both are complete.
        if video is not None:
            path = self.video_path(record.key)
            with staged_file(path) as staging:
                staging.write_bytes(video)
        if is_new:
            self.log.append(record)
        return is_new

    def _check_repeats(self, record: EpisodeRecord) -> None:
        """Raise SimulatorError where an episode went otherwise than recorded: its video would show something else."""
        recorded = next(each for each in self.log.records if each.key == record.key)
        if (recorded.success, recorded.steps) != (record.success, record.steps):
            # Physics may differ between versions and machines.
            raise SimulatorError(
                f"{record.key.file_name} did not repeat as recorded, so there is no video of it; "
                f"it was recorded with {recorded.versions}, now with {record.versions}"
            )


@dataclass
class _Tally:
    """Count episodes for what the progress bar says."""

    bar: Progress
    done: int
    solved: int
    new: int = 0
    crashed: int = 0

    def __post_init__(self) -> None:
        self._begin = time.perf_counter()

    def count(self, record: EpisodeRecord, is_new: bool) -> None:
        """Count an episode; one that was only run again for its video has been counted before."""
        self.new += 1
        self.done += is_new
        self.solved += is_new and record.success
        self.crashed += is_new and record.crashed
        crashes = f" · {self.crashed} crashed" if self.crashed else ""
        rate = self.new / (time.perf_counter() - self._begin)
        self.bar.advance(1, f"{self.solved} of {self.done} solved{crashes} · {rate:.2g} episodes/s")


def compare(
    first: Path,
    second: Path,
    first_policy: str | None = None,
    second_policy: str | None = None,
    measure: Measure = "success",
) -> None:
    """Print how the second policy's records compare with the first's."""
    sides = [_choose(path, policy) for path, policy in ((first, first_policy), (second, second_policy))]
    Console().print(to_terminal(comparison_table(sides[0], sides[1], measure)))


def _choose(path: Path, policy: str | None) -> Sequence[EpisodeRecord]:
    """Return the records of the policy that is named, or of the only one."""
    policies = by_policy(read_records(find_records(path)))
    if policy is None and len(policies) != 1:
        raise InvalidOption(f"{path} holds several policies ({', '.join(policies) or 'none'}); name the one to compare")
    if policy is not None and policy not in policies:
        raise unknown_name(f"policy in {path}", policy, policies)
    return next(iter(policies.values())) if policy is None else policies[policy]
