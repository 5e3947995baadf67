"""What a chunk takes in each way to decode, at batch 1 on one thread, kept in the study's folder."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from oat.evaluation.config import EvalConfig
from oat.evaluation.decoding_rules import choose_decodings, executing
from oat.experiments.study.held_out import find_policy
from oat.experiments.study.methods import Method
from oat.experiments.study.study import EvaluationRun, Study
from oat.export.latency import time_calls
from oat.io.atomic import staged_file
from oat.policies import Policy
from oat.policies.choosing import Previous
from oat.policies.decoding import Decoding
from oat.sims import find_simulator

DECODING_TIMINGS_FILE = "decoding-ms.json"


def read_decoding_timings(folder: Path) -> dict[str, float]:
    """Return the median milliseconds of a chunk by the name of the way to decode; nothing before they are measured."""
    file = folder / DECODING_TIMINGS_FILE
    if not file.exists():
        return {}
    taken: dict[str, float] = json.loads(file.read_text("utf-8"))
    return taken


def time_decodings(study: Study, method: Method, named: Mapping[str, EvaluationRun]) -> None:
    """Time one method's ways to decode that were not timed before, taking turns on one observation.

    They know the rest of a previous chunk, and how many actions are executed, as in an episode. Ways that need a
    stopping head are left out until there is one.
    """
    taken = read_decoding_timings(study.folder)
    # Any training seed's will do: what a chunk takes does not depend on the weights.
    seeds = range(study.seeds or study.scale.seeds_for(method))
    found = ((seed, find_policy(study, method, seed)) for seed in seeds)
    seed, policy = next(((seed, policy) for seed, policy in found if policy is not None), (0, None))
    runs = {name: replace(run, seed=seed) for name, run in named.items() if name not in taken}
    ready = {name: run for name, run in runs.items() if not _lacks_head(study, run)}
    if policy is None or not ready:
        return
    observation = policy.random_observation(1)
    execute = find_simulator(study.sim).protocol.execute
    previous = Previous(policy.predict_chunk(observation).actions[:, execute:])
    calls = {
        name: partial(policy.predict_chunk, observation, _decoding(study, policy, run, execute), previous=previous)
        for name, run in ready.items()
    }
    times = time_calls(calls, study.scale.timings)
    taken |= {name: float(np.median(each)) for name, each in times.items()}
    with staged_file(study.folder / DECODING_TIMINGS_FILE) as staging:
        staging.write_text(json.dumps(taken, indent=1, ensure_ascii=False), "utf-8")


def _lacks_head(study: Study, run: EvaluationRun) -> bool:
    return run.decoding is not None and run.decoding.needs_head and not study.finished(run.head)


def _decoding(study: Study, policy: Policy, run: EvaluationRun, execute: int) -> Decoding:
    """Return how a run decodes; one without a way of its own as the policy was trained for."""
    options: dict[str, Any] = {"num_tokens": run.method.prefixes[-1:]}
    if run.decoding is not None:
        options |= run.decoding.options
        options |= {"head": study.folder / run.head} if run.decoding.needs_head else {}
    config = EvalConfig(study.folder, study.sim, study.folder, **options)
    (decoding,) = choose_decodings(config, policy, config.num_tokens, config.stop)
    return executing(decoding, policy, execute if run.execute is None else run.execute)
