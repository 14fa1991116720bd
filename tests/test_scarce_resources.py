"""A disk that is full and memory that runs out: one sentence, nothing half written, and work that can be continued."""

import errno
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml
from PIL import Image

from hf_ngsan.cli import main
from hf_ngsan.io.files import write_file_atomically
from hf_ngsan.io.folders import write_folder_atomically
from hf_ngsan.io.messages import errno_of, is_out_of_memory, sentence
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.training.loop import TrainingLoop
from tests.commands.running import fails
from tests.dying import in_process, workers
from tests.guests.tiny import save, tiny
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.tasks.tiny import tiny_sections
from tests.test_dying import PRELOADED, differences, extract, outcome, train, write_extraction, write_training

NO_SPACE = os.strerror(errno.ENOSPC)
VISION = {"kind": "grid", "backbone_config": {"model_type": "ngsan_vgg", "hidden_sizes": [4, 6], "depths": [1, 1]}}
RESERVE = 64 * 2**20
NEEDS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


@pytest.fixture
def small_disk(tmp_path) -> Iterator[Path]:
    """A file system of its own in memory, whose size `resize` changes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True).returncode:
        pytest.skip("file systems cannot be mounted here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def read_only_disk(small_disk: Path) -> Path:
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    return small_disk


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train", "caption", "score", "push", "index", "extract", "configs", "export"])
def test_a_folder_that_cannot_be_written_is_told_in_one_sentence(read_only_disk, tmp_path, capsys, command):
    model, place = tmp_path / "model", read_only_disk / "new"
    tiny_captioner(vision_config=VISION, visual_feature_size=6).save_pretrained(model)
    processor = tiny_processor()
    processor.image_processor = CaptioningImageProcessor(size={"height": 16, "width": 16})
    processor.save_pretrained(model)
    Image.new("RGB", (20, 16)).save(tmp_path / "photo.png")
    save(tiny("clip"), tmp_path / "clip")
    references = [{"image_id": 1, "caption": "a dog"}, {"image_id": 2, "caption": "a cat"}]
    (tmp_path / "results.json").write_text(json.dumps(references))
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(tiny_sections(place)))
    scores = ["--predictions", tmp_path / "results.json", "--references", tmp_path / "results.json"]
    words = {
        "train": ["--config", tmp_path / "config.yaml"],
        "caption": ["--model", model, tmp_path / "photo.png", "--output", place],
        "score": [*scores, "--metrics", "bleu", "--per-image", place],
        "push": [model, "user/model", "--dry-run", place],
        "index": ["--model", tmp_path / "clip", "--images", tmp_path / "photo.png", "--output", place],
        "extract": ["--images", tmp_path / "photo.png", "--backbone", model, "--output", place],
        "configs": ["--copy", "ngsan/scenes", "--output", place],
        "export": ["--model", model, "--output", place],
    }[command]
    assert str(read_only_disk) in fails(capsys, command, *words)
    assert list(read_only_disk.iterdir()) == []


def resize(disk: Path, num_bytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={num_bytes}", str(disk)], check=True)


def errors_in(log: Path) -> list[str]:
    """What a command has written to the screen, less its messages on the way."""
    text = log.read_text()
    assert "Traceback" not in text, text
    return [line for line in text.splitlines() if "hf-ngsan: error:" in line]


@pytest.mark.slow
@pytest.mark.parametrize("work", ["training", "extraction"])
def test_a_full_disk_is_told_in_one_sentence_and_the_work_continues_once_there_is_space(tmp_path, small_disk, work):
    {"training": write_training, "extraction": write_extraction}[work](tmp_path)
    command = partial({"training": train, "extraction": extract}[work], tmp_path)
    with workers(*PRELOADED) as pool:
        assert pool.submit(in_process, command, tmp_path / "straight").result() == 0
        expected = outcome(tmp_path / "straight")
        largest = 1.5 * sum(file.stat().st_size for file in (tmp_path / "straight").rglob("*") if file.is_file())
        sizes = [int(largest * part / 12) for part in range(1, 12)]
        codes = []
        for size in sizes:
            folder, log = small_disk / str(size), tmp_path / f"{size}.log"
            resize(small_disk, size)
            codes.append(pool.submit(in_process, command, folder, log=log).result())
            if codes[-1]:
                [error] = errors_in(log)
                assert codes[-1] == 2 and NO_SPACE in error, log.read_text()
            resize(small_disk, RESERVE)
            assert pool.submit(in_process, command, folder, log=log).result() == 0, log.read_text()
            assert differences(folder, expected) == []
            shutil.rmtree(folder)
    assert codes.count(2) >= 5


@NEEDS_FULL
def test_whatever_writes_a_file_the_full_disk_is_told_with_its_name(tmp_path):
    from safetensors.torch import save
    from tokenizers import Tokenizer, models

    def write_tokenizer(folder):
        Tokenizer(models.WordLevel({"a": 0}, unk_token="a")).save("/dev/full")

    def write_tensors(folder):
        with open("/dev/full", "wb") as file:
            file.write(save({"a": torch.zeros(9)}))

    def write_states(folder):
        with open("/dev/full", "wb") as file:
            torch.save({"a": torch.zeros(9)}, file)

    for write in (write_tokenizer, write_tensors, write_states):
        with pytest.raises(OSError) as caught:
            write_folder_atomically(tmp_path / "target", write)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "target"))
        with pytest.raises(OSError) as caught:
            write_file_atomically(tmp_path / "file", write)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "file"))
        told = sentence(caught.value)
        assert str(tmp_path / "file") in told and NO_SPACE in told and "--resume" in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_an_error_that_does_not_tell_of_the_full_disk(small_disk):
    """As those of NumPy and of C++; a part of the file has been written."""

    def write(folder):
        with open(folder / "file", "wb") as file, suppress(OSError):
            while True:
                file.write(bytes(2**16))
        raise RuntimeError("problem writing element 1024 to file")

    with pytest.raises(OSError) as caught:
        write_folder_atomically(small_disk / "target", write)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(small_disk / "target"))
    assert list(small_disk.iterdir()) == []

    def fail(folder):
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        write_folder_atomically(small_disk / "target", fail)


@pytest.mark.slow
def test_a_full_disk_ends_an_export_in_one_sentence(tmp_path, small_disk, capsys):
    pytest.importorskip("onnxruntime", reason="the extra export is not installed")
    tiny_captioner().save_pretrained(tmp_path / "model")
    tiny_processor().save_pretrained(tmp_path / "model")
    for size in (2**13, 2**16, 2**17):
        resize(small_disk, size)
        words = ["export", "--model", tmp_path / "model", "--output", small_disk / "exported"]
        assert NO_SPACE in fails(capsys, *words)
        assert list(small_disk.iterdir()) == []


def test_the_operating_systems_error_is_found_behind_others():
    assert errno_of(OSError(errno.EDQUOT, "quota")) == errno.EDQUOT
    assert errno_of(RuntimeError("I/O error: No space left on device (os error 28)")) == 28
    assert errno_of(shutil.Error([("a", "b", "[Errno 28] No space left on device")])) == 28
    try:
        try:
            raise OSError(errno.ENOSPC, "full")
        finally:
            raise RuntimeError("unexpected pos 704 vs 598")
    except RuntimeError as error:
        assert errno_of(error) == errno.ENOSPC
    assert errno_of(ValueError("28")) is None


def test_a_lack_of_memory_is_known_by_whatever_tells_it():
    for allocate in (lambda: torch.empty(10**16), lambda: bytearray(2**62)):
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            allocate()
        assert is_out_of_memory(caught.value)
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(OSError(errno.ENOMEM, "mmap"))
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))


def test_memory_that_runs_out_in_training_is_one_sentence_and_the_run_continues(tmp_path, monkeypatch, capsys):
    for name in ("straight", "scarce"):
        (tmp_path / f"{name}.yaml").write_text(
            yaml.safe_dump(tiny_sections(tmp_path / name, data={"validation_split": None}))
        )
    update = TrainingLoop.update

    def update_or_lack(self, batches):
        if self.progress.step == 6:
            torch.empty(10**16)
        update(self, batches)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLoop, "update", update_or_lack)
        message = fails(capsys, "train", "--config", tmp_path / "scarce.yaml")
    assert "emory" in message and "training.gradient_accumulation_steps" in message
    for name in ("straight", "scarce"):
        assert main(["train", "--config", str(tmp_path / f"{name}.yaml"), "--resume"]) == 0
    weights = [(tmp_path / name / "last" / "model.safetensors").read_bytes() for name in ("straight", "scarce")]
    assert weights[0] == weights[1]
    more = ["training.gradient_accumulation_steps=2", "evaluation.batch_size=1", "training.epochs=3"]
    assert main(["train", "--config", str(tmp_path / "scarce.yaml"), "--resume", *more]) == 0


def train_with_little_memory(folder: Path) -> int:
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + RESERVE, used + RESERVE))
    return main(["train", "--config", str(folder / "tiny.yaml"), "model.hidden_size=4096"])


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_a_limit_of_memory_is_told_in_one_sentence(tmp_path):
    write_training(tmp_path)
    with workers(*PRELOADED) as pool:
        code = pool.submit(in_process, partial(train_with_little_memory, tmp_path), tmp_path / "work").result()
    [error] = errors_in(tmp_path / "work.log")
    assert code == 2 and "emory" in error
    assert not list((tmp_path / "work").rglob("model.safetensors"))
