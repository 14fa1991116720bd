"""A full disk and missing memory: an error of one sentence, no partial files, and work that can be resumed."""

import errno
import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from hf_ngsan.cli import main
from hf_ngsan.io.files import write_file_atomically
from hf_ngsan.io.folders import write_folder_atomically
from hf_ngsan.io.messages import errno_of, is_out_of_memory, sentence
from hf_ngsan.training.loop import TrainingLoop
from tests.commands.running import fails
from tests.tasks.tiny import tiny_sections

NO_SPACE = os.strerror(errno.ENOSPC)
NEEDS_FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")


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
        output = sentence(caught.value)
        assert str(tmp_path / "file") in output and NO_SPACE in output and "--resume" in output
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_and_a_lack_of_memory_are_known_by_whatever_tells_them():
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
