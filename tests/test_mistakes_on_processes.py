"""What is wrong on two processes is one sentence, told once, without a traceback of any library."""

from pathlib import Path

import pytest
import yaml

from tests.extraction.tiny import tiny_processor, tiny_vision, write_photos
from tests.tasks.tiny import tiny_sections
from tests.test_journeys import start

pytestmark = pytest.mark.slow

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
    """Runs a command on two processes, which must refuse it; returns what is wrong."""
    log = folder / "errors.txt"
    with open(log, "w") as errors:
        process = start("-m", "hf_ngsan.cli", *words, "--num-processes", 2, stderr=errors, cwd=folder)
        assert process.wait(300) == 2, log.read_text()
    text = log.read_text()
    told = [line for line in text.splitlines() if "error" in line.lower() or "Traceback" in line]
    assert len(told) == 1 and told[0].startswith("hf-ngsan: error: "), text
    return told[0]


def train(folder: Path, *words: object) -> str:
    (folder / "tiny.yaml").write_text(yaml.safe_dump(tiny_sections(folder / "run")))
    return refusal_of(folder, "train", "--config", "tiny.yaml", *words)


def test_a_mistake_in_the_training_config_is_told_once(tmp_path):
    assert "nowhere" in train(tmp_path, "data.spec=features:nowhere")
    assert not (tmp_path / "run").exists()


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


def test_an_extraction_that_one_process_cannot_continue(tmp_path):
    """The photos of one of the processes only are damaged, and none may be."""
    write_photos(tmp_path / "photos", 8)
    (tmp_path / "photos" / "000007.png").write_bytes(b"")
    tiny_vision().save_pretrained(tmp_path / "vision")
    tiny_processor().save_pretrained(tmp_path / "vision")
    options = ["--backbone", "vision", "--output", "features", "--batch-size", 2, "--images-per-shard", 2]
    assert "000007.png" in refusal_of(tmp_path, "extract", "--images", "photos", *options, "--num-workers", 0)
