"""Several processes of a command, and how their end is reported."""

import os
import signal
import subprocess
import sys
import time

import pytest

from hf_ngsan.io import processes
from hf_ngsan.io.processes import has_lost_another, launch_processes, run_processes, tell_error
from tests.tables import each_row

WORKER = """
import os, signal, sys, time
from pathlib import Path
from hf_ngsan.io.processes import launch_processes, run_processes
if sys.argv[1] == "parent":
    sys.exit(run_processes([__file__, "waits"], 2))
launch_processes([], None, None)
rank, folder = int(os.environ["RANK"]), Path(__file__).parent
(folder / f"pid-{rank}").write_text(str(os.getpid()))
time.sleep(100)
"""


@pytest.fixture
def worker(tmp_path):
    file = tmp_path / "hf-ngsan"  # its name imports the package without the models
    file.write_text(WORKER)
    return str(file)


SAYS = "import os; open(os.environ['HF_NGSAN_MESSAGES'] + '/' + os.environ['RANK'], 'w').write('what is wrong.'); "
ENDS = {
    "done": ("pass", 0, ""),
    "wrong": (SAYS + "os._exit(2)", 2, "hf-ngsan: error: what is wrong.\n"),
    "ended": ("import os; os.kill(os.getpid(), 15)", 143, ""),
    "killed": (
        "import os, time; time.sleep(100) if os.environ['RANK'] == '0' else os.kill(os.getpid(), 9)",
        137,
        "hf-ngsan: error: process 1 was ended by SIGKILL.\n",
    ),
}


@each_row("how", ENDS)
def test_what_processes_say_is_said_once_and_the_first_failure_is_the_exit_code(how, capfd, monkeypatch):
    monkeypatch.setattr(processes, "SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(processes, "SECONDS_TO_END", 0.05)
    code, exit_code, message = ENDS[how]
    assert (run_processes(["-S", "-c", code], 2), capfd.readouterr().err) == (exit_code, message)


def test_an_error_is_left_to_the_parent_and_one_that_follows_from_the_end_of_another_is_known(monkeypatch, tmp_path):
    assert not has_lost_another(RuntimeError("gloo: closed"))
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert has_lost_another(RuntimeError("gloo: closed")) and not has_lost_another(ValueError("gloo"))
    monkeypatch.setenv(processes.MESSAGES, str(tmp_path))
    monkeypatch.setenv("RANK", "3")
    tell_error("what is wrong.")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("000003", "what is wrong.")]


def test_one_process_and_those_of_torchrun_go_on(monkeypatch):
    monkeypatch.setattr("hf_ngsan.io.processes.run_processes", lambda command, number: number)
    assert [launch_processes([], number, lambda: None) for number in (None, 1, 2)] == [None, None, 2]
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert launch_processes([], 2, lambda: None) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_processes_end_with_the_one_that_started_them(worker, tmp_path, name):
    parent = subprocess.Popen([sys.executable, worker, "parent"], stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: all((tmp_path / f"pid-{rank}").is_file() for rank in range(2)))
        workers = [int((tmp_path / f"pid-{rank}").read_text()) for rank in range(2)]
        parent.send_signal(signal.Signals[name])
    finally:
        parent.wait(60)
    wait_until(lambda: not any(is_running(worker) for worker in workers))


def wait_until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def is_running(pid) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as file:  # a zombie waits for its new parent
        return file.read().rpartition(")")[2].split()[0] != "Z"
