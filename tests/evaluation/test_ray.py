"""On a Ray cluster the same episodes give the same records as here."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oat.errors import InvalidOption
from oat.evaluation.config import EvalConfig
from oat.evaluation.evaluate import evaluate_policy
from oat.evaluation.records import read_records
from oat.evaluation.workers.pool import EnvironmentPool
from oat.evaluation.workers.ray import RayActors
from oat.experiments.config import ReproduceConfig
from oat.experiments.study.runs import Run
from oat.experiments.study.scheduler import RunFailed, open_workers, perform_all
from oat.io.cluster import connect, count_processes
from oat.sims.config import CollectConfig
from tests.evaluation.point import CRASH_ALWAYS, CRASH_ONCE, FAIL_ALWAYS, make_point
from tests.evaluation.test_rollout import PROTOCOL, make_policy, plan, run, without_times
from tests.evaluation.untrained import save_policy


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A cluster of two nodes with one core each."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # Ray keeps a token there
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster_utils: Any = pytest.importorskip("ray.cluster_utils")
        cluster = cluster_utils.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        cluster.add_node(num_cpus=1)
        yield cluster.address
        cluster.shutdown()


def test_records_are_those_of_local_workers(address: str, tmp_path: Path) -> None:
    """Also of episodes in which actors die."""
    policy, conditions = make_policy(), [5, CRASH_ONCE, 17, CRASH_ALWAYS, 30, FAIL_ALWAYS, 60, 9]
    local = run(plan(tmp_path, conditions), policy)
    (tmp_path / "crashed").unlink()
    with connect(address) as ray:
        remote = run(plan(tmp_path, conditions), policy, EnvironmentPool(RayActors(ray, PROTOCOL, make_point), 2, 2))
    assert {c for c, record in remote.items() if record.crashed} == {CRASH_ALWAYS, FAIL_ALWAYS}
    assert "died" in remote[CRASH_ALWAYS].error
    assert "the physics exploded" in remote[FAIL_ALWAYS].error
    for condition in (CRASH_ALWAYS, FAIL_ALWAYS):  # tracebacks tell where they come from
        remote[condition] = replace(remote[condition], error=local[condition].error)
    assert without_times(remote) == without_times(local)


def test_the_command_is_the_same(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the real simulator, with a video that comes back over the network."""
    here = EvalConfig(
        save_policy(tmp_path / "policy", "diffusion"),
        sim="metaworld",
        out=tmp_path / "here",
        tasks=("drawer-close",),
        episodes=2,
        denoising_steps=1,
        videos=1,
        workers=2,
    )
    there = replace(here, out=tmp_path / "there", backend="ray", address=address)
    for config in (here, there):
        evaluate_policy(config)
    assert "drawer-close" in capsys.readouterr().out
    one, two = (
        {record.key.condition: record for record in read_records(config.out / "records.jsonl")}
        for config in (here, there)
    )
    assert without_times(one) == without_times(two)
    (film,) = (here.out / "videos").iterdir()
    assert film.read_bytes() == (there.out / "videos" / film.name).read_bytes()


def test_runs_of_an_experiment_are_performed_there(address: str, tmp_path: Path) -> None:
    """In the order of their needs; what goes wrong there is told here."""

    def collect(name: str, task: str, *needs: str) -> Run:
        return Run(tmp_path, name, CollectConfig("metaworld", (task,), tmp_path / name, episodes=1), needs)

    first, second, broken = (
        collect("first", "reach"),
        collect("second", "reach", "first"),
        collect("broken", "no-such-task"),
    )
    for trivial in (first, second):
        trivial.config.out.mkdir()  # what was collected already is only marked as done
    config = ReproduceConfig(("table-sim",), jobs=2, backend="ray", address=address)
    with open_workers(config) as submit:
        perform_all([second, first], submit, jobs=2)
        with pytest.raises(RunFailed, match=r"1 of 1 runs failed \(broken: .*no-such-task"):
            perform_all([broken], submit, jobs=2)
    assert first.done
    assert second.done
    assert first.log.read_text().startswith("oat collect metaworld --tasks reach")
    assert not broken.done


def test_bad_addresses_and_too_many_workers_are_told(address: str) -> None:
    for wrong in ("127.0.0.1:1", "nowhere", "127.0.0.1:port"):
        with pytest.raises(InvalidOption, match=f"no Ray cluster answers at {wrong}"), connect(wrong):
            pass
    with connect(address) as ray:
        assert count_processes(ray, None) == 2
        assert count_processes(ray, 1) == 1
        with pytest.raises(InvalidOption, match="2 cores, too few for 3 workers"):
            count_processes(ray, 3)
