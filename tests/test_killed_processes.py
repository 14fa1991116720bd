"""Runs and extractions on two processes of which any is killed with `kill -9` end as if none had been."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.extraction.tiny import tiny_processor, tiny_vision, write_photos
from tests.tasks.tiny import tiny_sections
from tests.test_dying import outcome
from tests.test_journeys import start, succeed

pytestmark = pytest.mark.slow

VICTIMS = ["launcher", "0", "1"]
LONGEST_WAIT = 120


def kill_each(command: list, folder: Path, progress: str) -> None:
    """Kills the launcher, then either process, each in a run that resumes the last; compares the end.

    Args:
        command: of `hf-ngsan`, run in a folder of its own.
        folder: gets one for the run that is killed and one for that which is not.
        progress: pattern of the files or folders that show that a run has come further.
    """
    words = ["-m", "hf_ngsan.cli", *command, "--num-processes", 2]
    for name in ("straight", "killed"):
        (folder / name).mkdir()
    succeed(*words, cwd=folder / "straight")
    moments = random.Random(0)
    for victim in VICTIMS:
        launcher = start(*words, cwd=folder / "killed")
        known = set((folder / "killed").glob(progress))
        wait_until(lambda known=known: not known.issuperset((folder / "killed").glob(progress)))
        time.sleep(moments.uniform(0, 0.1))
        processes = [psutil.Process(launcher.pid), *workers_of(launcher.pid)]
        chosen = processes[VICTIMS.index(victim)]
        assert chosen.is_running() and len(processes) == 3, f"{victim} has ended before it was killed"
        chosen.kill()
        launcher.wait(LONGEST_WAIT)
        wait_until(lambda processes=processes: not any(map(is_running, processes[1:])))
    succeed(*words, cwd=folder / "killed")
    found, expected = outcome(folder / "killed"), outcome(folder / "straight")
    assert [name for name in sorted({*found, *expected}) if found.get(name) != expected.get(name)] == []


def workers_of(pid: int) -> Iterator[psutil.Process]:
    """Returns the processes that torchrun has started, in the order of their ranks."""
    workers = [child for child in psutil.Process(pid).children() if "RANK" in child.environ()]
    return iter(sorted(workers, key=lambda child: int(child.environ()["RANK"])))


def is_running(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def wait_until(condition) -> None:
    end = time.monotonic() + LONGEST_WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.002)


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
    kill_each(command, tmp_path, "run/checkpoints/step-*")


def test_extraction_on_two_processes(tmp_path):
    write_photos(tmp_path / "photos", 80)
    tiny_vision().save_pretrained(tmp_path / "vision")
    tiny_processor().save_pretrained(tmp_path / "vision")
    command = ["extract", "--images", tmp_path / "photos", "--split", "train", "--backbone", tmp_path / "vision"]
    command += ["--output", "features", "--batch-size", "1", "--images-per-shard", "1", "--num-workers", "0"]
    kill_each(command, tmp_path, "features/records/shard-*.json")
