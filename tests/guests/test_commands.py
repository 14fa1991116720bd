"""Commands with captioners of transformers: output, records and errors."""

import contextlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import BatchFeature

from hf_ngsan.cli import main
from hf_ngsan.guests import Guest
from hf_ngsan.loading.hub import run_self_test
from hf_ngsan.loading.models import load_captioner
from tests.commands.running import fails, prints
from tests.guests.tiny import photos
from tests.tables import each_row

SCENES = ("--data", "scenes:images=true", "--split", "test", "--limit", "3")


@pytest.fixture
def blip(guest) -> Path:
    return guest("blip")


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pictures")
    files = [folder / f"{number}.png" for number in range(2)]
    for file, photo in zip(files, photos(2), strict=True):
        photo.save(file)
    return files


def captions(printed: str) -> list[str]:
    return [line.split("\t")[1] for line in printed.splitlines()]


def test_files_and_rows_are_captioned(blip, guest, pictures, capsys):
    printed = prints(capsys, "caption", "--model", blip, *pictures, "--text", "the red", "--max-new-tokens", "3")
    assert [caption[:8] for caption in captions(printed)] == ["the red "] * 2
    assert len(captions(prints(capsys, "caption", "--model", blip, *SCENES))) == 3
    for name in ("git", "vit_gpt2"):
        command = ["caption", "--model", guest(name), pictures[0], "--text", "the red", "--generate", "max_length=5"]
        [caption] = captions(prints(capsys, *command))
        assert caption.startswith("the red") and len(caption.split()) <= 5


def test_searches_are_those_of_other_captioners(blip, pictures, capsys):
    command = ["caption", "--model", blip, pictures[0], "--max-new-tokens", "6"]
    [required] = captions(prints(capsys, *command, "--num-beams", "3", "--generate", "required_words=photo"))
    assert "photo" in required.split()
    groups = ("--generate", "num_beams=2", "num_beam_groups=2", "num_return_sequences=2")
    assert len(set(captions(prints(capsys, *command, *groups)))) == 2


@each_row(
    ("command", "options", "named"),
    [
        ("caption", ["photo.png", "--save-attention", "maps"], "return_attention"),
        ("caption", ["photo.png", "--model", "BLIP", "ngsan-photos"], "blip"),
        ("caption", ["--data", "scenes"], "images"),
        ("audit", [], "blip"),
        ("index", ["--images", ".", "--output", "photos.index"], "retrieval"),
        ("export", ["--output", "graphs"], "BlipForConditionalGeneration"),
    ],
)
def test_what_it_cannot_do_is_refused(blip, command, options, named, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    photos(1)[0].save("photo.png")
    options = [blip if option == "BLIP" else option for option in options]
    model = [] if "--model" in options else ["--model", blip]
    assert named in fails(capsys, command, *options, *model)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["photo.png"]


def test_scores_are_recorded_beside_the_model_or_in_a_file(guest, tmp_path, capsys):
    blip = shutil.copytree(guest("blip"), tmp_path / "blip")
    assert main(["evaluate", "--model", str(blip), *SCENES, "--record"]) == 0
    printed = json.loads(capsys.readouterr().out)
    [recorded] = json.loads((blip / "evaluations.json").read_text())
    assert recorded["scores"] == printed
    assert "max:20" in recorded["fingerprints"]["cider_d"]
    assert run_self_test(*load_captioner(blip), blip).passed
    file = tmp_path / "scores.json"
    assert main(["evaluate", "--model", str(blip), *SCENES, "--record", str(file)]) == 0
    assert json.loads(file.read_text()) == {"model": [str(blip)], **recorded}


@pytest.mark.slow
def test_code_beside_a_known_model_is_never_run(blip, pictures, tmp_path, capsys):
    folder, canary = tmp_path / "stranger", tmp_path / "canary"
    shutil.copytree(blip, folder)
    (folder / "own.py").write_text(f"open({str(canary)!r}, 'w').close()\nclass Own: pass\n")
    for file, names in {
        "config.json": ["AutoConfig", "AutoModel", "AutoModelForImageTextToText"],
        "processor_config.json": ["AutoProcessor"],
        "tokenizer_config.json": ["AutoTokenizer"],
    }.items():
        settings = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps({**settings, "auto_map": dict.fromkeys(names, "own.Own")}))
    config = tmp_path / "config.yaml"
    config.write_text(json.dumps({"model": {"init_from": str(folder)}, "data": {"spec": "scenes:size=4,images=true"}}))
    for command in (
        ["caption", "--model", folder, pictures[0]],
        ["evaluate", "--model", folder, *SCENES],
        ["inspect", folder],
        ["push", folder, "user/model", "--dry-run", tmp_path / "pushed"],
        ["train", "--config", config, f"output_dir={tmp_path / 'run'}", "training.epochs=1", "training.tracker=null"],
        ["index", "--model", folder, "--images", pictures[0].parent, "--output", tmp_path / "index"],
        ["extract", "--images", pictures[0].parent, "--backbone", folder, "--output", tmp_path / "features"],
    ):
        with contextlib.suppress(SystemExit):
            main([str(word) for word in command])
        assert not canary.exists(), command
    assert not list((tmp_path / "pushed").glob("*.py"))


def test_images_whose_inputs_differ_are_no_batch(guest):
    class Odd(Guest):
        def inputs(self, image, text=""):
            return BatchFeature({"pixel_values": torch.zeros(1, 3, image.height, image.width)})

    captioner = Odd(*load_captioner(guest("blip")))
    with pytest.raises(ValueError, match="gradient_accumulation_steps"):
        captioner.batch([Image.new("RGB", size) for size in ((8, 8), (8, 9))], None)
