"""Several processes of a command: how their end is told."""

import signal
import subprocess
import sys

import pytest

WORKER = """
import os, signal, sys, time
rank = int(os.environ["RANK"])
if sys.argv[1] == "fails" and rank == 1:
    print("hf-ngsan: error: what is wrong.", file=sys.stderr)
    sys.exit(2)
if sys.argv[1] == "killed" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[1] != "done":
    try:
        os.write(1, b"waiting\\n")  # at once, lest the lines of two processes mix
        time.sleep(100)
    except KeyboardInterrupt:
        sys.exit(130)
"""


@pytest.fixture
def start(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER)
    launch = [sys.executable, "-m", "hf_ngsan.launching", "--standalone", "--nproc-per-node", "2"]

    def start(how):
        command = [*launch, str(tmp_path / "worker.py"), how]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "code", "message"),
    [
        ("done", 0, ""),
        ("fails", 2, "hf-ngsan: error: what is wrong.\n"),
        ("killed", 128 + signal.SIGKILL, "hf-ngsan: error: process 1 was ended by SIGKILL.\n"),
    ],
)
def test_what_processes_say_is_all_that_is_said(start, how, code, message):
    process = start(how)
    _, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (code, message)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_processes_that_are_stopped_end_quietly(start, name):
    process = start("waits")
    assert [process.stdout.readline() for _ in range(2)] == ["waiting\n"] * 2
    process.send_signal(signal.Signals[name])
    _, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (128 + signal.Signals[name], "")
