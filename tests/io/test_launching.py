"""Several processes of a command: how their end is told."""

import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

from hf_ngsan.io.launching import launch_processes, run_processes
from tests.tables import each_row

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
    launch = [sys.executable, "-m", "hf_ngsan.io.launching", "--standalone", "--nproc-per-node", "2"]

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


@each_row(
    ("ends", "code"),
    [({0: -15, 1: 2}, 2), ({0: 2, 1: -15}, 2), ({0: 1, 1: -9}, 137), ({0: -15, 1: -9}, 137), ({0: -15}, 143)],
)
def test_a_process_that_torchrun_ended_is_not_the_cause(monkeypatch, capfd, ends, code):
    failures = {rank: SimpleNamespace(local_rank=rank, exitcode=end, timestamp=7) for rank, end in ends.items()}
    error = ChildFailedError.__new__(ChildFailedError)
    error.failures = failures

    def main():
        raise error

    monkeypatch.setattr("torch.distributed.run.main", main)
    monkeypatch.setattr("logging.disable", lambda level: None)
    assert run_processes() == code
    assert ("process 1 was ended by SIGKILL" in capfd.readouterr().err) == (code == 137)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_processes_that_are_stopped_end_quietly(start, name):
    process = start("waits")
    assert [process.stdout.readline() for _ in range(2)] == ["waiting\n"] * 2
    process.send_signal(signal.Signals[name])
    _, error = process.communicate(timeout=120)
    assert (process.returncode, error) == (128 + signal.Signals[name], "")


@pytest.fixture
def accelerate(monkeypatch):
    """Pretends that `accelerate launch` with some options is the parent; returns the commands that are started."""
    started = []

    def launch(*options: str, uses_cpu: bool):
        words = ["python", "-m", "accelerate.commands.launch", *options, "script.py"]
        monkeypatch.setattr("psutil.Process.cmdline", lambda process: words)
        monkeypatch.setenv("ACCELERATE_USE_CPU", str(uses_cpu))
        launch_processes(["script.py"])
        return started

    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(os, "execv", lambda *arguments: started.append(arguments))
    return launch


def test_accelerate_without_cpu_is_told_that_it_has_started_one_process(accelerate, caplog):
    assert not accelerate("--num_processes", "3", uses_cpu=False)
    [record] = caplog.records
    assert record.levelname == "WARNING"
    assert "--cpu" in record.getMessage() and "3" in record.getMessage()


@each_row("options", [[], ["--num_processes", "1"], ["--num_processes=1"]])
def test_one_process_is_no_matter(accelerate, caplog, options):
    for uses_cpu in (False, True):
        assert not accelerate(*options, uses_cpu=uses_cpu)
    assert not caplog.records


def test_accelerate_with_cpu_gets_the_processes_it_asked_for(accelerate, caplog):
    [(_, command)] = accelerate("--cpu", "--num_processes", "3", uses_cpu=True)
    assert command[-3:] == ["--nproc-per-node", "3", "script.py"]
    assert not caplog.records


ORPHAN = """
import os, sys, time
from hf_ngsan.io.launching import launch_processes

launch_processes([__file__])
with open(os.path.join(os.path.dirname(__file__), "pid-" + os.environ["RANK"]), "w") as file:
    file.write(str(os.getpid()))
time.sleep(100)
"""


@pytest.mark.slow
def test_processes_end_with_the_one_that_started_them(tmp_path):
    (tmp_path / "orphan.py").write_text(ORPHAN)
    command = [sys.executable, "-m", "hf_ngsan.io.launching", "--standalone", "--nproc-per-node", "2"]
    parent = subprocess.Popen([*command, str(tmp_path / "orphan.py")])
    try:
        wait_until(lambda: all((tmp_path / f"pid-{rank}").exists() for rank in range(2)))
        time.sleep(0.5)
    finally:
        parent.kill()
        parent.wait()
    workers = [int((tmp_path / f"pid-{rank}").read_text()) for rank in range(2)]
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
    with open(f"/proc/{pid}/stat") as file:  # a zombie waits for whoever took it over
        return file.read().rpartition(")")[2].split()[0] != "Z"
