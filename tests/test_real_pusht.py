"""The human PushT demonstrations; OAT_TEST_PUSHT points at the ReplayBuffer that diffusion_policy published."""

import os
from pathlib import Path

import numpy as np
import pytest

from oat.data.episodes import STATE, open_dataset
from tests.test_cli import oat

PUSHT = os.environ.get("OAT_TEST_PUSHT")


@pytest.mark.skipif(PUSHT is None, reason="OAT_TEST_PUSHT is not set")
def test_converts_and_reads_back_equal(tmp_path: Path) -> None:
    assert PUSHT is not None
    done = oat("convert", PUSHT, tmp_path / "pusht")
    assert done.returncode == 0, done.stderr
    source, copy = open_dataset(PUSHT), open_dataset(tmp_path / "pusht")
    assert (len(source), source.num_frames, source.action_dim) == (206, 25650, 2)
    np.testing.assert_array_equal(copy.actions, source.actions)
    np.testing.assert_array_equal(copy.ends, source.ends)
    assert set(copy.observations) == set(source.observations)
    frames = np.arange(source.num_frames)
    for key in (STATE, "observation.keypoint", "observation.n_contacts"):
        np.testing.assert_array_equal(copy.observation(key)[frames], source.observation(key)[frames])
    image = "observation.images.img"
    for part in np.array_split(frames, 50):
        np.testing.assert_array_equal(copy.observation(image)[part], source.observation(image)[part])
