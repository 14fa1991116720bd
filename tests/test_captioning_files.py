"""`hf-ngsan caption IMAGE…`: a caption for each file, figures on demand, one sentence for what cannot be read."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from hf_ngsan import captioning_files
from hf_ngsan.captioning_files import caption_files, figure_paths
from hf_ngsan.cli import main
from hf_ngsan.loading import save_model
from hf_ngsan.models import images
from hf_ngsan.models.images import content_of_file
from hf_ngsan.visualization import plot_word_maps
from tests.commands.running import fails
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("captioner")
    save_model(pixel_captioner(), pixel_processor(), folder)
    return folder


@pytest.fixture
def photos(tmp_path) -> list[Path]:
    files = [tmp_path / f"photo {number}.png" for number in range(len(PHOTOS))]
    for photo, file in zip(PHOTOS, files, strict=True):
        photo.save(file)
    return files


def captions(capsys, *arguments) -> list[list[str]]:
    """Run `caption`; returns the lines that it prints, cut at the tab."""
    capsys.readouterr()
    assert main(["caption", *map(str, arguments)]) == 0
    return [line.split("\t") for line in capsys.readouterr().out.splitlines()]


def test_files_are_captioned_in_their_order(capsys, model, photos):
    expected = []
    pixels, processor = pixel_captioner(), pixel_processor()
    for photo in PHOTOS:
        ids = pixels.generate(**processor(images=photo), num_beams=2)
        expected += processor.batch_decode(ids, skip_special_tokens=True)
    for options in ([], ["--batch-size", "2"]):
        found = captions(capsys, "--model", model, *photos, "--num-beams", "2", *options)
        assert found == [[str(path), caption.strip()] for path, caption in zip(photos, expected, strict=True)]
    assert len(set(expected)) > 2
    assert captions(capsys, "--model", model, "--limit", "2", *photos) == captions(
        capsys, "--model", model, *photos[:2]
    )


def test_captions_begin_as_told(capsys, model, photos):
    assert all(
        caption.startswith("a red") for _, caption in captions(capsys, "--model", model, *photos, "--text", "a red")
    )


def test_attention_goes_into_a_folder(capsys, model, photos, tmp_path):
    plain = captions(capsys, "--model", model, *photos)
    assert captions(capsys, "--model", model, *photos, "--save-attention", tmp_path / "new/maps") == plain
    figures = sorted(path.name for path in (tmp_path / "new/maps").iterdir())
    assert figures == [f"photo {number}.png" for number in range(len(photos))]
    with Image.open(tmp_path / "new/maps/photo 0.png") as figure:
        assert min(figure.size) > 100


def test_figures_are_drawn_of_small_copies_and_each_image_is_read_once(monkeypatch, photos, tmp_path):
    big = tmp_path / "big.jpg"
    PHOTOS[0].resize((1600, 1200)).save(big)
    drawn, read = [], []
    monkeypatch.setattr(
        captioning_files, "plot_word_maps", lambda *parts: drawn.append(parts) or plot_word_maps(*parts)
    )
    monkeypatch.setattr(images, "content_of_file", lambda *at: read.append(at[0]) or content_of_file(*at))
    paths = [str(big), str(photos[1])]
    found = list(caption_files(pixel_captioner(), pixel_processor(), paths, attention_folder=tmp_path / "maps"))
    assert [path for path, _, _ in found] == paths == read
    assert [image.size for image, _, _ in drawn] == [(640, 480), PHOTOS[1].size]
    assert [maps.shape[1:] for _, _, maps in drawn] == [(480, 640), PHOTOS[1].size[::-1]]
    assert [" ".join(words) for _, words, _ in drawn] == [caption for _, caption, _ in found]


def test_a_caption_without_words_has_no_figure(caplog, photos, tmp_path):
    silent = pixel_captioner()
    with torch.no_grad():
        silent.lm_head.bias[silent.config.eos_token_id] += 50
    paths = [str(path) for path in photos[:2]]
    found = list(caption_files(silent, pixel_processor(), paths, attention_folder=tmp_path / "maps"))
    assert found == [(path, "", None) for path in paths]
    assert not list((tmp_path / "maps").iterdir())
    assert [record.getMessage() for record in caplog.records] == [
        f"The caption of {path} has no words; there is no figure of it." for path in paths
    ]


def test_figures_of_files_with_one_name_are_told_apart():
    names = [path.name for path in figure_paths(["a/x.jpg", "b/x.jpg", "x.png", "x-2.png"], Path("maps"))]
    assert names == ["x.png", "x-2.png", "x-3.png", "x-2-2.png"]


def test_a_file_that_is_no_image(capsys, model, photos, tmp_path):
    text = tmp_path / "text.jpg"
    text.write_text("no picture")
    files = [photos[0], text, photos[1]]
    assert "text.jpg" in fails(capsys, "caption", "--model", model, *files)
    lines = captions(capsys, "--model", model, *files, "--skip-errors")
    assert [path for path, _ in lines] == [str(file) for file in files]
    assert [bool(caption) for _, caption in lines] == [True, False, True]
    assert main(["caption", "--model", str(model), "--skip-errors", *map(str, files)]) == 0
    assert "skipped: Image 1" in capsys.readouterr().err


def test_what_does_not_go_together(capsys, model, photos, tmp_path):
    assert "Give image files" in fails(capsys, "caption", "--model", model)
    assert "not both" in fails(capsys, "caption", "--model", model, "--data", "scenes", photos[0])
    assert "--save-attention is for image files" in fails(
        capsys, "caption", "--model", model, "--data", "scenes", "--save-attention", tmp_path
    )
    save_model(tiny_captioner(), tiny_processor(), tmp_path / "blind")
    assert "no vision encoder" in fails(capsys, "caption", "--model", tmp_path / "blind", photos[0])
    assert "photo 0.png" in fails(capsys, "caption", "--model", model, photos[0], "--save-attention", photos[0])
