"""Policies act in the real praxis-eval, under its own MetaWorld contract."""

import json
from pathlib import Path

import numpy as np
from conftest import Run
from lerobot_policy_oat.building import policy_for
from lerobot_policy_oat.configuration_oat import BCConfig, OATConfig
from praxis_eval.envs.metaworld import CONTRACT

from oat.serving.praxis_eval import LocalChunks, PraxisPolicy
from oat.sims.metaworld_lerobot import IMAGE

OPTIONS = {"preset": "tiny", "chunk_size": 8, "n_action_steps": 4, "device": "cpu"}
SEEN = dict.fromkeys(("observation.state", IMAGE))
# In a process of its own: praxis-eval forks, which a process that has rendered does not survive.
EVALUATE = """
import json, sys
import oat.sims.rendering as rendering
rendering.prepare_graphics()
from praxis_eval import EvalConfig, evaluate
from oat.policies import load_policy
from oat.serving.praxis_eval import LocalChunks, PraxisPolicy

class Recorded(PraxisPolicy):
    def act(self, observations, **options):
        actions = super().act(observations, **options)
        seen = observations[0]
        self.last = {key: getattr(value, "shape", value) for key, value in seen.items()}
        self.last |= {"maximum": options["action_spec"].maximum, "actions": actions.tolist()}
        return actions

policy = Recorded(LocalChunks(load_policy(sys.argv[1])), execute=3)
config = EvalConfig(
    num_eval_per_task=2, num_parallel_env=2, output_dir=sys.argv[2], task="coffee-button-v3", seed=5,
    env_kwargs={"episode_length": 4},
)
result = evaluate("metaworld", policy=policy, config=config)
print("RESULT", json.dumps({"overall": dict(result.overall), "last": policy.last}, default=str))
"""


def test_an_episode_runs_to_its_end(run: Run, demos: Path, tmp_path: Path) -> None:
    config = OATConfig(**OPTIONS, tokenizer_steps=3, input_features=SEEN)  # type: ignore[arg-type]
    policy_for(config, demos).save(tmp_path / "policy")
    printed = run(EVALUATE, str(tmp_path / "policy"), str(tmp_path / "out"))
    result = json.loads(printed.split("RESULT ")[1].splitlines()[0])
    assert result["overall"]["n_episodes"] == 2
    last = result["last"]
    assert last["task"] == "Push a button on the coffee machine"
    assert last["observation.images.corner2"] == [3, 480, 480]
    assert last["observation.state"] == [4]
    assert np.shape(last["actions"]) == (2, 4)
    assert np.abs(last["actions"]).max() <= last["maximum"] == 1


def test_actions_obey_the_contract(demos: Path) -> None:
    policy = PraxisPolicy(LocalChunks(policy_for(BCConfig(**OPTIONS, input_features=SEEN), demos).eval()))  # type: ignore[arg-type]
    seen = {
        "task": "Push a button on the coffee machine",
        "observation.state": np.full(4, 50.0),
        "observation.images.corner2": np.ones((3, 480, 480), np.float32),
    }
    actions = policy.act([seen], action_spec=CONTRACT.action)
    CONTRACT.action.validate_batch(actions, batch_size=1)
