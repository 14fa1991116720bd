"""Trainings, extractions and indexes on several processes: as on one, killed with `kill -9`, and mistakes told once."""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml
from safetensors.torch import load_file

from tests.extraction.tiny import write_photos
from tests.tasks.tiny import DATA, tiny_sections
from tests.test_dying import OTHER_TASKS, outcome
from tests.training.test_loop import same_weights, scores

ROOT = Path(__file__).parents[1]
pytestmark = pytest.mark.slow

NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}


def write_config(folder, **sections):
    file = folder / "tiny.yaml"
    file.write_text(yaml.safe_dump(tiny_sections(folder / "run", **sections)))
    return file


def start(*arguments, **options):
    """A Python process in a separate session, so that it can be ended with all its child processes."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)], env=environment, text=True, start_new_session=True, **options
    )


def succeed(*arguments, **options) -> tuple[str, str]:
    """Runs a Python process, which must not fail; returns its output and errors."""
    process = start(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    try:
        output, errors = process.communicate(timeout=500)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, errors
    return output, errors


def history_of(run):
    return scores([json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()])


def numbers_of(entry):
    return {name: value for name, value in entry.items() if name != "stage"}


def test_several_processes_do_what_one_does(tmp_path):
    """30 images in batches of 29 and 1: with 3 processes shares differ, and two shares of the last batch are empty."""
    num_processes = 3
    sections = {
        "model": NO_DROPOUT,
        "training": {"batch_size": 29, "adam_epsilon": 1e-4, "max_grad_norm": 1.0, "epochs": 3, "save_every_steps": 1},
    }
    folders = [tmp_path / "one", tmp_path / "several"]
    for folder in folders:
        folder.mkdir()
    element, several = (write_config(folder, **sections) for folder in folders)
    succeed("-m", "hf_ngsan.cli", "train", "--config", element)
    succeed("-m", "hf_ngsan.cli", "train", "--config", several, "--num-processes", num_processes)

    weights = [load_file(folder / "run" / "last" / "model.safetensors") for folder in folders]
    assert max((weights[0][name] - weights[1][name]).abs().max().item() for name in weights[0]) < 1e-5
    histories = [history_of(folder / "run") for folder in folders]
    for ours, theirs in zip(*histories, strict=True):
        assert numbers_of(ours) == pytest.approx(numbers_of(theirs), rel=1e-4)

    shutil.copytree(folders[1] / "run", tmp_path / "killed")
    newest = max((tmp_path / "killed" / "checkpoints").iterdir())
    shutil.rmtree(newest)  # as if the run had been killed within its last epoch
    killed = ["--config", several, f"training.output_dir={tmp_path / 'killed'}", "--resume"]
    succeed("-m", "hf_ngsan.cli", "train", *killed, "--num-processes", num_processes)
    for name in ("last", f"checkpoints/{newest.name}"):
        assert same_weights(tmp_path / "killed" / name, folders[1] / "run" / name)

    outputs = []
    for folder, extra in zip(folders, ([], ["--num-processes", num_processes]), strict=True):
        file = folder / "captions.json"
        command = ["-m", "hf_ngsan.cli", "evaluate", "--model", folders[0] / "run", "--data", DATA["spec"]]
        printed, _ = succeed(*command, "--batch-size", 2, "--output", file, *extra)
        outputs.append((json.loads(file.read_text()), json.loads(printed)))
    assert outputs[0] == outputs[1]


VICTIMS = {"launcher": ("0", "getppid"), "process 0": ("0", "getpid"), "process 1": ("1", "getpid")}
"""The process that kills them, and the variable with their number."""

UPDATE = ("hf_ngsan.training.loop", "TrainingLoop", "update")
LONGEST_WAIT = 600

KILLING = """
import os, signal, time
from pathlib import Path

from {module} import {kind}

original = {kind}.{method}
calls = []

def wait_for_the_end(self, *arguments):
    calls.append(self)
    if len(calls) == {fatal}:
        if os.environ["RANK"] == "{killer}":
            Path("process-killer").write_text(str(os.getpid()))
            os.kill(os.{victim}(), signal.SIGKILL)
        time.sleep({longest_wait})
    return original(self, *arguments)

if "RANK" in os.environ:
    Path("process-" + os.environ["RANK"]).write_text(str(os.getpid()))
    {kind}.{method} = wait_for_the_end
"""
"""A module for `--import`: in each process a certain call waits, and one of the processes kills the victim."""


def kill_each(command: list, folder: Path, slow_method: tuple[str, str, str], kept: str) -> None:
    """Kills the launcher, then each process, each in a run that resumes the previous one, and compares the result.

    A run is killed in the second to fourth call of a method of a class of a module; files or folders of the pattern
    `kept` show its progress.
    """
    words = ["-m", "hf_ngsan.cli", *command, "--num-processes", 2]
    straight, killed = folder / "straight", folder / "killed"
    straight.mkdir()
    killed.mkdir()
    succeed(*words, cwd=straight)
    numbers = random.Random(0)
    for name, (killer, victim) in VICTIMS.items():
        module, kind, method = slow_method
        words_of_code = {"module": module, "kind": kind, "method": method, "killer": killer, "victim": victim}
        code = KILLING.format(**words_of_code, fatal=numbers.randint(2, 4), longest_wait=LONGEST_WAIT)
        (killed / "killing.py").write_text(code)
        known = set(killed.glob(kept))
        launcher = start(*words, "--import", "killing", cwd=killed)
        code = launcher.wait(LONGEST_WAIT)
        # The other process may end first, with code 1, because of its lost connection.
        assert code in ([-signal.SIGKILL] if name == "launcher" else [128 + signal.SIGKILL, 1])
        assert (killed / "process-killer").exists(), f"{name} was not killed"
        for file in killed.glob("process-*"):
            wait_until_ended(int(file.read_text()))
            file.unlink()
        assert not known.issuperset(killed.glob(kept)), f"nothing was done before {name} was killed"
    (killed / "killing.py").unlink()
    shutil.rmtree(killed / "__pycache__", ignore_errors=True)
    succeed(*words, cwd=killed)
    actual, expected = outcome(killed), outcome(straight)
    assert [name for name in sorted({*actual, *expected}) if actual.get(name) != expected.get(name)] == []


def wait_until_ended(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            process.wait(LONGEST_WAIT)


CAPTIONING = {
    "data": {"spec": "scenes:size=24,validation=2,seed=3"},
    "training": {"stage": "auto", "epochs": 2, "batch_size": 3, "save_every_steps": 1, "ema_decay": 0.5},
    "self_critical": {"epochs": 1, "samples_per_image": 2, "max_new_tokens": 6},
    "evaluation": {"metric": "bleu_1", "max_new_tokens": 6, "num_beams": 1},
}


@pytest.mark.parametrize(
    "task", ["captioning", *(pytest.param(element, marks=pytest.mark.nightly) for element in OTHER_TASKS)]
)
def test_training_on_two_processes(task, tmp_path):
    if task == "captioning":
        sections = tiny_sections(Path("run"), **CAPTIONING)
    else:
        sections = OTHER_TASKS[task](tmp_path)
        sections["training"] |= {"epochs": 6, "save_every_steps": 1}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(sections))
    command = ["train", "--config", tmp_path / "tiny.yaml", "--resume"]
    kill_each(command, tmp_path, UPDATE, "run/checkpoints/step-*")


@pytest.mark.nightly
def test_extraction_on_two_processes(vision, tmp_path):
    write_photos(tmp_path / "photos", 40)
    command = ["extract", "--images", tmp_path / "photos", "--split", "train", "--backbone", vision]
    command += ["--output", "features", "--batch-size", "1", "--images-per-shard", "1", "--num-workers", "0"]
    kill_each(command, tmp_path, ("hf_ngsan.io.shards", "ShardWriter", "commit"), "features/records/shard-*.json")


@pytest.mark.nightly
def test_indexing_on_two_processes(dual_encoder, tmp_path):
    write_photos(tmp_path / "photos", 24)
    command = ["index", "--images", tmp_path / "photos", "--model", dual_encoder, "--output", "index"]
    command += ["--batch-size", "1", "--images-per-shard", "1", "--num-workers", "0"]
    method = ("hf_ngsan.retrieval.index_folder", "IndexFolder", "write_shard")
    kill_each(command, tmp_path, method, "index/shard-*")


ON_ONE_PROCESS = """
import os

from hf_ngsan.training.loop import TrainingLoop

update = TrainingLoop.update

def fail(self, batches):
    if self.accelerator.process_index == {process} and self.progress.step == 3:
        raise {error}
    update(self, batches)

if "RANK" in os.environ:
    TrainingLoop.update = fail
"""


def refusal_of(folder: Path, *words: object) -> str:
    """Runs a command on two processes, which must reject it; returns the error message."""
    log = folder / "errors.txt"
    with open(log, "w") as errors:
        process = start("-m", "hf_ngsan.cli", *words, "--num-processes", 2, stderr=errors, cwd=folder)
        assert process.wait(300) == 2, log.read_text()
    text = log.read_text()
    message = [line for line in text.splitlines() if "error" in line.lower() or "Traceback" in line]
    assert len(message) == 1 and message[0].startswith("hf-ngsan: error: "), text
    return message[0]


def train(folder: Path, *words: object) -> str:
    (folder / "tiny.yaml").write_text(yaml.safe_dump(tiny_sections(folder / "run")))
    return refusal_of(folder, "train", "--config", "tiny.yaml", *words)


@pytest.mark.parametrize(
    ("process", "error", "fact"),
    [
        (1, "OSError(28, 'No space left on device', 'cache')", "cache"),
        (0, "MemoryError", "training.gradient_accumulation_steps"),
    ],
)
def test_what_is_wrong_in_one_process_only_ends_both(tmp_path, process, error, fact):
    (tmp_path / "failing.py").write_text(ON_ONE_PROCESS.format(process=process, error=error))
    assert fact in train(tmp_path, "--import", "failing")


def test_an_extraction_that_one_process_cannot_continue(vision, tmp_path):
    """Only one of the processes has damaged photos, and no damaged photos are allowed."""
    write_photos(tmp_path / "photos", 8)
    (tmp_path / "photos" / "000007.png").write_bytes(b"")
    options = ["--backbone", vision, "--output", "features", "--batch-size", 2, "--images-per-shard", 2]
    assert "000007.png" in refusal_of(tmp_path, "extract", "--images", "photos", *options, "--num-workers", 0)
