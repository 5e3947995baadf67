"""Run one policy in praxis-eval, the harness of the paper's authors, on the initial conditions of `oat eval`.

In the environment of `make test-lerobot`: python benchmarks/harnesses.py POLICY --tasks coffee-button --episodes 5
--out FILE. Both harnesses seed MetaWorld alike, so that episodes are paired.
"""

import argparse
import json
import time
from pathlib import Path

import torch

from oat.export.loading import load_predictor
from oat.serving.praxis_eval import LocalChunks, PraxisPolicy
from oat.sims.metaworld_lerobot import LeRobotMetaWorld
from oat.sims.rendering import prepare_graphics


def main() -> None:
    """Evaluate, and write what each episode came to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policy", type=Path)
    parser.add_argument("--tasks", nargs="+", required=True)
    parser.add_argument("--episodes", type=int, default=5)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    prepare_graphics()
    from praxis_eval import EvalConfig, evaluate

    torch.set_num_threads(1)
    source = LocalChunks(load_predictor(given.policy))
    results = {}
    for task in given.tasks:
        begin = time.perf_counter()
        result = evaluate(
            "metaworld",
            policy=PraxisPolicy(source),
            config=EvalConfig(
                num_eval_per_task=given.episodes,
                output_dir=given.out.with_suffix(""),
                task=f"{task}-v3",
                seed=LeRobotMetaWorld().conditions(task, "reporting")[0],
                env_kwargs={"episode_length": given.steps},
            ),
        )
        seconds = time.perf_counter() - begin
        results[task] = {"overall": dict(result.overall), "per_task": dict(result.per_task), "seconds": seconds}
        given.out.write_text(json.dumps(results, indent=2, default=str), encoding="utf-8")


if __name__ == "__main__":
    main()
