"""What a chunk takes in each way to decode, at batch 1 on one thread, kept in the study's folder."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from oat.evaluation.config import EvalConfig
from oat.evaluation.decoding_rules import choose_decodings
from oat.experiments.study.decodings import DecodingRun
from oat.experiments.study.held_out import find_policy
from oat.experiments.study.methods import Method
from oat.experiments.study.study import Study
from oat.export.latency import time_calls
from oat.io.atomic import staged_file

DECODING_TIMINGS_FILE = "decoding-ms.json"


def read_decoding_timings(folder: Path) -> dict[str, float]:
    """Return the median milliseconds of a chunk by the name of the way to decode; nothing before they are measured."""
    file = folder / DECODING_TIMINGS_FILE
    if not file.exists():
        return {}
    taken: dict[str, float] = json.loads(file.read_text("utf-8"))
    return taken


def time_decodings(study: Study, method: Method, named: Mapping[str, DecodingRun | None]) -> None:
    """Time one method's ways to decode that were not timed before, taking turns on one observation.

    None stands for decoding as the policy was trained for.
    """
    # Any training seed's will do: what a chunk takes does not depend on the weights.
    policies = (find_policy(study, method, seed) for seed in range(study.seeds or study.scale.seeds_for(method)))
    policy = next((found for found in policies if found is not None), None)
    taken = read_decoding_timings(study.folder)
    missing = {name: rule for name, rule in named.items() if name not in taken}
    if policy is None or not missing:
        return
    observation = policy.random_observation(1)
    calls = {}
    for name, rule in missing.items():
        options = {"num_tokens": method.prefixes[-1:], **({} if rule is None else rule.options)}
        config = EvalConfig(study.folder, study.sim, study.folder, **options)
        (decoding,) = choose_decodings(config, policy, config.num_tokens, config.stop)
        calls[name] = partial(policy.predict_chunk, observation, decoding)
    times = time_calls(calls, study.scale.timings)
    taken |= {name: float(np.median(each)) for name, each in times.items()}
    with staged_file(study.folder / DECODING_TIMINGS_FILE) as staging:
        staging.write_text(json.dumps(taken, indent=1, ensure_ascii=False), "utf-8")
