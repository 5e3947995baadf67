"""The public names exist, and importing the package is light."""

import subprocess
import sys

import oat


def test_every_public_name_exists() -> None:
    assert all(hasattr(oat, name) for name in oat.__all__)


def test_importing_is_light() -> None:
    heavy = "{'torch', 'mujoco', 'metaworld', 'h5py', 'zarr', 'av', 'matplotlib', 'pyarrow'}"
    code = f"import sys, oat; found = {heavy} & set(sys.modules); sys.exit(', '.join(found) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
