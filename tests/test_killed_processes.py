"""Runs and extractions on two processes of which any is killed with `kill -9` end as if none had been."""

import contextlib
import random
import shutil
import signal
from pathlib import Path

import psutil
import pytest
import yaml

from hf_ngsan.loading.models import save_model
from tests.extraction.tiny import tiny_processor, tiny_vision, write_photos
from tests.models.mhsan import tiny as tiny_dual_encoder
from tests.tasks.tiny import tiny_sections
from tests.test_dying import OTHER_TASKS, outcome
from tests.test_journeys import start, succeed

VICTIMS = {"launcher": ("0", "getppid"), "process 0": ("0", "getpid"), "process 1": ("1", "getpid")}
"""Who kills them, and what tells their number."""

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
"""A module for `--import`: in each process the call with a certain number waits, and one of them kills the victim."""


def kill_each(command: list, folder: Path, slow_method: tuple[str, str, str], kept: str) -> None:
    """Kills the launcher, then either process, each in a run that resumes the last, and compares the end.

    A run is killed in the second to fourth call of a method of a class of a module; files or folders of the pattern
    `kept` show that it has come further.
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
        # The other process may end first, with code 1, by the connection that it has lost.
        assert code in ([-signal.SIGKILL] if name == "launcher" else [128 + signal.SIGKILL, 1])
        assert (killed / "process-killer").exists(), f"{name} was not killed"
        for file in killed.glob("process-*"):
            wait_until_ended(int(file.read_text()))
            file.unlink()
        assert not known.issuperset(killed.glob(kept)), f"nothing was done before {name} was killed"
    (killed / "killing.py").unlink()
    shutil.rmtree(killed / "__pycache__", ignore_errors=True)
    succeed(*words, cwd=killed)
    found, expected = outcome(killed), outcome(straight)
    assert [name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)] == []


def wait_until_ended(pid: int) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        if process.status() != psutil.STATUS_ZOMBIE:
            process.wait(LONGEST_WAIT)


@pytest.mark.slow
def test_training_on_two_processes(tmp_path):
    sections = tiny_sections(
        Path("run"),
        data={"spec": "scenes:size=24,validation=2,seed=3"},
        training={"stage": "auto", "epochs": 2, "batch_size": 3, "save_every_steps": 1, "ema_decay": 0.5},
        self_critical={"epochs": 1, "samples_per_image": 2, "max_new_tokens": 6},
        evaluation={"metric": "bleu_1", "max_new_tokens": 6, "num_beams": 1},
    )
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(sections))
    command = ["train", "--config", tmp_path / "tiny.yaml", "--resume"]
    kill_each(command, tmp_path, UPDATE, "run/checkpoints/step-*")


@pytest.mark.nightly
@pytest.mark.parametrize("task", OTHER_TASKS)
def test_training_of_another_task_on_two_processes(task, tmp_path):
    sections = OTHER_TASKS[task](tmp_path)
    sections["training"] |= {"epochs": 6, "save_every_steps": 1}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(sections))
    command = ["train", "--config", tmp_path / "tiny.yaml", "--resume"]
    kill_each(command, tmp_path, UPDATE, "run/checkpoints/step-*")


@pytest.mark.nightly
def test_extraction_on_two_processes(tmp_path):
    write_photos(tmp_path / "photos", 40)
    tiny_vision().save_pretrained(tmp_path / "vision")
    tiny_processor().save_pretrained(tmp_path / "vision")
    command = ["extract", "--images", tmp_path / "photos", "--split", "train", "--backbone", tmp_path / "vision"]
    command += ["--output", "features", "--batch-size", "1", "--images-per-shard", "1", "--num-workers", "0"]
    kill_each(command, tmp_path, ("hf_ngsan.io.shards", "ShardWriter", "commit"), "features/records/shard-*.json")


@pytest.mark.nightly
def test_indexing_on_two_processes(tmp_path):
    write_photos(tmp_path / "photos", 24)
    model = tiny_dual_encoder.tiny_model(vision_config=tiny_dual_encoder.VISION)
    save_model(model, tiny_dual_encoder.tiny_processor(pixels=True), tmp_path / "model")
    command = ["index", "--images", tmp_path / "photos", "--model", tmp_path / "model", "--output", "index"]
    command += ["--batch-size", "1", "--images-per-shard", "1", "--num-workers", "0"]
    method = ("hf_ngsan.retrieval.index_folder", "IndexFolder", "write_shard")
    kill_each(command, tmp_path, method, "index/shard-*")
