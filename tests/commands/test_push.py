"""`hf-ngsan push`: a model is uploaded to the Hub and loaded without the package."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from huggingface_hub import ModelCard

from hf_ngsan.cli import main
from hf_ngsan.io.packaged import CAPTIONER
from hf_ngsan.loading.models import ModelFolderError
from hf_ngsan.sharing import check_checkpoint, write_checkpoint
from tests.commands.running import fails, prints
from tests.hub_stub import REPOSITORY, WRITER, hub
from tests.loading.test_hub import result_of
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import pixel_captioner, pixel_processor
from tests.sharing.conftest import online  # noqa: F401
from tests.tables import each_row


def test_what_is_no_checkpoint_is_refused_before_anything_is_uploaded(scene_captioner, online, tmp_path, capsys):  # noqa: F811
    (tmp_path / "empty").mkdir()
    (tmp_path / "half").mkdir()
    (tmp_path / "half" / "config.json").write_text((scene_captioner / "config.json").read_text())
    for folder in ("missing", "empty", "half"):
        assert folder in fails(capsys, "push", tmp_path / folder, REPOSITORY)
    assert "a/b/c" in fails(capsys, "push", scene_captioner, "a/b/c")
    assert not online.requests


def test_without_a_token(scene_captioner, online, monkeypatch, capsys):  # noqa: F811
    monkeypatch.delenv("HF_TOKEN")
    message = fails(capsys, "push", scene_captioner, REPOSITORY)
    assert REPOSITORY in message and "HF_TOKEN" in message
    assert not online.requests


@each_row("option", [("--license", "mit"), ("--runs", "run")])
def test_what_would_change_nothing_in_a_card_that_is_there_is_refused(option, scene_captioner, run, tmp_path, capsys):
    shutil.copytree(run, tmp_path / "run")
    folder = tmp_path / "run" / "best"
    (folder / "README.md").write_text("# Mine\n")
    words = [str(tmp_path / word) if word == "run" else word for word in option]
    assert option[0] in fails(capsys, "push", folder, REPOSITORY, "--dry-run", tmp_path / "shared", *words)
    assert not (tmp_path / "shared").exists()


def test_the_packaged_captioner_has_its_licence(tmp_path, capsys):
    words = ["push", CAPTIONER, REPOSITORY, "--dry-run", tmp_path / "shared", "--license", "mit"]
    assert "--license" in fails(capsys, *words)
    assert not (tmp_path / "shared").exists()


@pytest.fixture
def unchecked(monkeypatch):
    """Checkpoints are not loaded in another process before they are uploaded."""
    monkeypatch.setattr("hf_ngsan.sharing.upload.check_checkpoint", lambda folder: None)


@each_row(
    ("words", "card", "message"),
    [
        (["--license", "Apache 2.0"], None, "apache-2.0"),
        (["--license", "other"], None, "--license-name"),
        (["--license-name", "Mine"], None, "--license-name"),
        ([], "license: Apache 2.0", "apache-2.0"),
        ([], "license: other", "license_name"),
    ],
)
def test_a_licence_is_one_that_the_hub_lists(words, card, message, scene_captioner, tmp_path, capsys, unchecked):
    folder = shutil.copytree(scene_captioner, tmp_path / "model")
    if card:
        (folder / "README.md").write_text(f"---\n{card}\n---\n")
    assert message in fails(capsys, "push", folder, REPOSITORY, "--dry-run", tmp_path / "shared", *words)
    assert not (tmp_path / "shared").exists()


def test_a_licence_that_the_hub_does_not_list_has_a_name(scene_captioner, tmp_path, capsys, unchecked):
    words = ["--license", "other", "--license-name", "Mine"]
    prints(capsys, "push", scene_captioner, REPOSITORY, "--dry-run", tmp_path / "shared", *words)
    licence = ModelCard.load(tmp_path / "shared" / "README.md").data
    assert (licence.license, licence.license_name) == ("other", "Mine")


def test_of_a_folder_only_what_belongs_to_the_model_is_uploaded(scene_captioner, online, unchecked, tmp_path, capsys):  # noqa: F811
    folder = shutil.copytree(scene_captioner, tmp_path / "model")
    for name in (".env", ".git/config", "notes.ipynb", "optimizer.pt", "checkpoints/1/state.json", "run.sh", "own.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("secret")
    assert REPOSITORY in prints(capsys, "push", folder, REPOSITORY, "--private")
    files = online.repositories[REPOSITORY].files
    assert {"config.json", "model.safetensors", "README.md"} <= files.keys()
    assert b"secret" not in files.values()


@pytest.mark.slow
def test_a_folder_that_does_not_load_without_the_package(tmp_path):
    write_checkpoint(tiny_captioner(), tiny_processor(), tmp_path / "model", REPOSITORY)
    check_checkpoint(tmp_path / "model")
    (tmp_path / "model" / "attention.py").write_text("import what_nobody_has\n")
    with pytest.raises(ModelFolderError, match="what_nobody_has"):
        check_checkpoint(tmp_path / "model")


@pytest.mark.slow
def test_a_dry_run_writes_what_a_push_uploads(scene_captioner, tmp_path, capsys, online, monkeypatch):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    assert REPOSITORY in prints(capsys, "push", scene_captioner, REPOSITORY, "--dry-run", "--license", "cc-by-4.0")
    assert not online.requests
    files = {path.name: path.read_bytes() for path in (tmp_path / "captioner").iterdir()}
    assert ModelCard(files["README.md"].decode()).data.license == "cc-by-4.0"
    assert REPOSITORY in prints(capsys, "push", scene_captioner, REPOSITORY, "--license", "cc-by-4.0")
    assert online.repositories[REPOSITORY].files == files
    mine = shutil.copytree(scene_captioner, tmp_path / "mine")
    (mine / "README.md").write_text("---\nlicense: mit\n---\n\n# Mine\n")
    assert main(["push", str(mine), REPOSITORY]) == 0
    assert "# Mine" in online.repositories[REPOSITORY].files["README.md"].decode()


PULL = """
import json, sys
sys.modules["hf_ngsan"] = None
from transformers import pipeline
pipe = pipeline("image-to-text", model={repository!r}, revision={revision!r}, trust_remote_code=True)
print(json.dumps([answers[0]["generated_text"] for answers in pipe({photos!r})]))
"""


@pytest.mark.slow
def test_what_was_pushed_is_pulled_at_its_revision_without_the_package(photographs, tmp_path):
    """Processes use the Hub at HF_ENDPOINT; an earlier revision keeps its weights."""
    photos, captions = [str(file) for file in photographs[:2]], {}
    with hub() as server:
        server.large_from = 50_000
        variables = {"HF_ENDPOINT": server.url, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": WRITER}
        environment = {**os.environ, **variables, "HF_HOME": str(tmp_path / "home")}
        for version in ("first", "second"):
            made, processor = pixel_captioner(), pixel_processor()
            with torch.no_grad():
                made.lm_head.bias[4 + len(version)] += 6
            made.save_pretrained(tmp_path / version)
            processor.save_pretrained(tmp_path / version)
            command = [sys.executable, "-m", "hf_ngsan.cli", "push", str(tmp_path / version), REPOSITORY]
            process = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
            assert process.returncode == 0, process.stderr
            repository = server.repositories[REPOSITORY]
            [tag] = [tag for tag, commit in repository.tags.items() if commit == repository.commits[-1][0]]
            sequences = made.generate(**processor(images=photos))
            captions[tag] = processor.batch_decode(sequences, skip_special_tokens=True)
        assert len(captions) == 2 and len({tuple(texts) for texts in captions.values()}) == 2
        for tag, texts in captions.items():
            code = PULL.format(repository=REPOSITORY, revision=tag, photos=photos)
            assert result_of(code, tmp_path, **variables) == texts
    assert json.loads(server.repositories[REPOSITORY].files["config.json"])["auto_map"]
