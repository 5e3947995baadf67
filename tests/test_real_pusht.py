"""The human PushT demonstrations; OAT_TEST_PUSHT points at the ReplayBuffer that diffusion_policy published."""

import os
from pathlib import Path

import numpy as np
import pytest

from oat.data.episodes import STATE, open_dataset
from tests.test_cli import oat

PUSHT = os.environ.get("OAT_TEST_PUSHT")
SOME = "0:8,100:104,198:206"  # from all parts of it; to store every image as a PNG takes a minute


@pytest.mark.skipif(PUSHT is None, reason="OAT_TEST_PUSHT is not set")
def test_converts_and_reads_back_equal(tmp_path: Path) -> None:
    assert PUSHT is not None
    whole = open_dataset(PUSHT)
    assert (len(whole), whole.num_frames, whole.action_dim) == (206, 25650, 2)
    done = oat("convert", PUSHT, tmp_path / "pusht", "--episodes", SOME)
    assert done.returncode == 0, done.stderr
    source, copy = open_dataset(PUSHT, ranges=SOME), open_dataset(tmp_path / "pusht")
    assert len(copy) == 20
    np.testing.assert_array_equal(copy.lengths, source.lengths)
    assert set(copy.observations) == set(source.observations)
    there, here = source.all_frames(), copy.all_frames()
    np.testing.assert_array_equal(copy.actions[here], source.actions[there])
    for key in (STATE, "observation.keypoint", "observation.n_contacts", "observation.images.img"):
        np.testing.assert_array_equal(copy.observation(key)[here], source.observation(key)[there])
