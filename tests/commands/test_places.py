"""Files that commands read and write: inputs are never replaced, and mistakes are found before a model is loaded."""

import json

import pytest

from hf_ngsan.cli import main
from hf_ngsan.loading import models
from hf_ngsan.tasks import captioning_generation as generate
from tests.commands.running import fails
from tests.models.tiny_photos import PHOTOS


@pytest.fixture
def photos(tmp_path, monkeypatch):
    """The current folder, with photographs, files that commands read, and links to them; no model can be loaded."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for number, photo in enumerate(PHOTOS[:2]):
        photo.save(folder / f"{number}.png")
    (folder / "metadata.csv").write_text("file_name,caption\n0.png,a dog\n1.png,a log\n")
    (tmp_path / "results.json").write_text(json.dumps([{"image_id": 1, "caption": "a dog"}]))
    (tmp_path / "references.jsonl").write_text('{"image_id": 1, "caption": "a dog"}\n')
    (tmp_path / "text.en").write_text("a dog\n")
    (tmp_path / "link.png").symlink_to(folder / "0.png")
    (tmp_path / "linked").symlink_to(folder)
    monkeypatch.chdir(tmp_path)
    for module, name in ((models, "load_model"), (models, "load_captioner"), (generate, "load_captioners")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("a model is loaded"))
    return folder


def contents(folder) -> dict:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_no_output_replaces_an_input(photos, tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    before = contents(tmp_path)
    image, spec = "photos/0.png", "--data images:photos"
    for command in (
        *[f"caption {image} --output {image}", f"caption {image} --output link.png"],
        *[f"caption {image} photos/1.png --output linked/1.png", "caption photos --output photos/1.png"],
        *[f"caption {spec} --output photos/metadata.csv", f"caption {image} --save-attention photos"],
        f"answer q --image {image} --model m --save-attention photos",
        "score --predictions results.json --references references.jsonl --per-image results.json",
        "score --predictions results.json --references references.jsonl --per-image references.jsonl",
        *["translate --model m --input text.en --output ./text.en", f"explain --model m {image} dog --figure link.png"],
        *[f"references {spec} --output photos/metadata.csv", f"evaluate --model m {spec} --output photos/metadata.csv"],
        f"evaluate --model m {spec} --output a.json --record a.json",
        *[f"evaluate --model m {spec} --record linked/metadata.csv", f"visualness --model m {spec} --figures photos"],
        f"explain --model m {spec} --counterfactual swap --figure photos/0.png",
    ):
        assert "--" in fails(capsys, *command.split()), command
        assert contents(tmp_path) == before, command


def test_a_place_that_cannot_be_written_is_told_before_a_model_is_loaded(photos, tmp_path, capsys):
    for command in (
        "answer --model m --data nlvr:DIR --output",
        "caption photos/0.png --output",
        "evaluate --model m --data scenes --output",
        "translate --model m words --output",
        "explain --model m photos/0.png dog --figure",
        "search m dog --figure",
    ):
        assert "results.json" in fails(capsys, *command.split(), "results.json/result.png"), command


def test_missing_files_are_told_before_a_model_is_loaded(photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(models, "HF_HUB_OFFLINE", True)
    pytest.importorskip("matplotlib", reason="the extra plots is not installed")
    (tmp_path / "file").write_text("")
    for command, named in (
        ("caption gone.jpg", "gone.jpg"),
        ("caption --data photos", "images:photos"),
        ("evaluate --model somebody/captioner --data scenes", "HF_HUB_OFFLINE"),
        ("caption photos/0.png --rerank-with ./gone --num-beams 3", "gone"),
        ("answer q --model m --image gone.jpg", "gone.jpg"),
        ("explain --model m gone.jpg dog", "gone.jpg"),
        ("search gone.index --image gone.jpg", "gone.jpg"),
        ("translate --model m --input gone.en", "gone.en"),
        ("export --model m --output photos", "photos"),
        ("calibrate --model gone --data scenes", "gone"),
    ):
        assert named in fails(capsys, *command.split()), command


def test_all_images_skipped_is_a_failure(captioner, tmp_path, capsys):
    PHOTOS[0].save(tmp_path / "good.png")
    (tmp_path / "bad.png").write_bytes(b"no image")
    caption = ["caption", "--skip-errors", "--model", str(captioner)]
    for names, code in ((["bad.png"], 2), (["gone.png", "bad.png"], 2), (["good.png", "bad.png"], 0)):
        assert main([*caption, *(str(tmp_path / name) for name in names)]) == code, names
