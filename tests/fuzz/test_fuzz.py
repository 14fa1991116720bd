"""2,000 seeded cases, or `HF_NGSAN_FUZZ_CASES`, end well.

`HF_NGSAN_FUZZ_SEED=7 pytest -m nightly tests/fuzz/test_fuzz.py` tries others.
"""

import json
import os
import subprocess
import sys

import pytest

CASES = int(os.environ.get("HF_NGSAN_FUZZ_CASES", 2_000))


@pytest.mark.nightly
@pytest.mark.timeout(1_800)
def test_every_command_ends_with_0_or_one_sentence(tmp_path):
    seed = os.environ.get("HF_NGSAN_FUZZ_SEED", "1")
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HF_HOME": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "tests.fuzz.run", seed, str(CASES)]
    done = subprocess.run(command, env={**os.environ, **offline}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2_000:]
    faults = [json.loads(line) for line in done.stdout.splitlines()]
    told = "\n\n".join(f"{one['number']} {one['name']} {one['fault']}\n{one['output'][-500:]}" for one in faults[:20])
    assert not faults, f"seed {seed}: {len(faults)} cases, {told}"
