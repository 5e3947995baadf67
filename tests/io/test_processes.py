"""An interrupted command ends, also when a thread of it never would."""

import subprocess
import sys

import pytest

_STUCK = """
import sys, threading
from oat.io.processes import leave_within
held = threading.Lock()
held.acquire()
threading.Thread(target=held.acquire).start()  # nobody releases it
leave_within(0.3, 130)
print("said", flush=True)
sys.exit(130)
"""
_ENDS = "import sys; from oat.io.processes import leave_within; leave_within(60, 7); sys.exit(130)"
_LIVES = "import time; from oat.io.processes import leave_within; leave_within(1.5, 7); time.sleep(2); print('lived')"


@pytest.mark.parametrize(
    ("script", "status", "output"), [(_STUCK, 130, "said"), (_ENDS, 130, ""), (_LIVES, 0, "lived")]
)
def test_a_process_ends_soon_after_its_main_thread_and_not_before(script: str, status: int, output: str) -> None:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (status, output, "")
