"""LeRobot's own commands: train, save, resume, and act in MetaWorld from the checkpoint alone."""

import json
import shutil
from pathlib import Path

from conftest import Run

TRAIN = "from lerobot.scripts.lerobot_train import main; main()"
# Six steps instead of 500: LeRobot has no option for it, and software renders a picture or two in a second.
EVAL = """
from metaworld.sawyer_xyz_env import SawyerXYZEnv
SawyerXYZEnv.max_path_length = 6
from lerobot.scripts.lerobot_eval import main
main()
"""


def test_train_20_steps_save_resume_and_act_in_metaworld(run: Run, demos: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run(
        TRAIN,
        *("--policy.type=oat", "--policy.preset=tiny", "--policy.tokenizer_steps=10", "--policy.chunk_size=8"),
        *("--policy.n_action_steps=4", "--policy.device=cpu", "--policy.push_to_hub=false"),
        *("--dataset.repo_id=oat/demos", f"--dataset.root={demos}", f"--output_dir={out}", "--num_workers=0"),
        *("--steps=20", "--save_freq=20", "--batch_size=4", "--log_freq=10", "--eval_freq=0", "--wandb.enable=false"),
    )
    checkpoint = out / "checkpoints/000020"
    assert (checkpoint / "training_state/optimizer_state.safetensors").exists()

    again = checkpoint / "pretrained_model/train_config.json"
    run(TRAIN, f"--config_path={again}", "--resume=true", "--steps=22", "--save_freq=22")
    resumed = out / "checkpoints/000022"
    assert json.loads((resumed / "training_state/training_step.json").read_text())["step"] == 22
    described = [_described(folder) for folder in (checkpoint, resumed)]
    assert described[0] == described[1]  # the tokenizer was not fitted anew

    alone = tmp_path / "elsewhere"
    shutil.move(resumed / "pretrained_model", alone)
    shutil.rmtree(out)
    demos.rename(demos.with_name("hidden"))
    try:
        run(
            EVAL,
            *(f"--policy.path={alone}", "--policy.device=cpu", "--policy.num_tokens=2", "--policy.n_action_steps=3"),
            *("--env.type=metaworld", "--env.task=coffee-button-v3", "--eval.n_episodes=1", "--eval.batch_size=1"),
            f"--output_dir={tmp_path / 'eval'}",
        )
    finally:
        demos.with_name("hidden").rename(demos)
    result = json.loads((tmp_path / "eval/eval_info.json").read_text())
    assert len(result["per_task"][0]["metrics"]["successes"]) == 1


def _described(checkpoint: Path) -> object:
    return json.loads((checkpoint / "pretrained_model/config.json").read_text())["description"]
