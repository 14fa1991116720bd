"""`hf-ngsan convert` as a person runs it."""

import os
import signal
import subprocess
import sys

import pytest
from datasets import load_from_disk

from tests.commands.running import fails, prints
from tests.data.formats.files import tsv_line, write_tsv, write_vatex


def test_a_file_becomes_a_folder_with_a_summary(tmp_path, capsys):
    path = write_tsv(tmp_path / "regions.tsv", [tsv_line(7), tsv_line(12, image_h=0), tsv_line(391895)])
    message = fails(capsys, "convert", path, "--output", tmp_path / "out")
    assert f"{path}, line 2" in message and "--skip-broken" in message
    assert not (tmp_path / "out").exists()
    text = prints(capsys, "convert", path, "--output", tmp_path / "out", "--skip-broken")
    assert "line 2" in text and "2 images" in text and "dimension 6" in text and "1 skipped" in text
    assert len(load_from_disk(str(tmp_path / "out"))) == 2
    assert "out" in fails(capsys, "convert", path, "--output", tmp_path / "out")


def test_the_format_can_be_named(tmp_path, capsys):
    path = write_vatex(tmp_path / "val")
    assert "2 to 4 each" in prints(capsys, "convert", path, "--from", "vatex", "--output", tmp_path / "out")
    assert "vqa-npz" in fails(capsys, "convert", path, "--from", "vqa-npz", "--output", tmp_path / "more")


@pytest.mark.slow
def test_kill_9(tmp_path):
    lines = [tsv_line(12, image_id=image_id) for image_id in range(600)]
    path = write_tsv(tmp_path / "regions.tsv", lines)
    command = [sys.executable, "-m", "hf_ngsan.cli", "convert", path, "--images-per-shard", "2", "--output"]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    records = tmp_path / ".incomplete-out" / "records"
    with subprocess.Popen([*command, tmp_path / "out"], env=environment, cwd=os.getcwd()) as process:
        while process.poll() is None and len(list(records.glob("shard-*.json"))) < 3:
            pass
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL and not (tmp_path / "out").exists()
    for output in ("out", "straight"):
        subprocess.run([*command, tmp_path / output], env=environment, check=True)
    rows = [load_from_disk(str(tmp_path / output)).to_list() for output in ("out", "straight")]
    assert rows[0] == rows[1] and len(rows[0]) == 600
