"""Captions of images from files and from rows of a dataset, and figures of their attention."""

import pytest
import torch

from hf_ngsan.models import images
from hf_ngsan.models.images import opened
from hf_ngsan.tasks import caption_images
from hf_ngsan.tasks.captioning_files import CaptionedImage
from hf_ngsan.visualization import plot_word_maps
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor


@pytest.fixture
def photos(photographs) -> list[str]:
    return [str(file) for file in photographs]


def caption(model, processor, images, **options) -> list:
    return list(caption_images(model, processor, images, [str(image) for image in images], **options))


def test_images_are_read_as_captions_are_asked_for(photos):
    opened = []

    def watched():
        for path in photos:
            opened.append(path)
            yield path

    answers = caption_images(pixel_captioner(), pixel_processor(), watched(), photos, batch_size=2)
    assert next(answers).name == photos[0]
    assert len(opened) < len(photos)


def test_figures_are_drawn_of_small_copies_and_each_image_is_read_once(monkeypatch, photos, tmp_path):
    big = tmp_path / "big.jpg"
    PHOTOS[0].resize((1600, 1200)).save(big)
    drawn, read = [], []
    monkeypatch.setattr(
        "hf_ngsan.tasks.captioning_generation.plot_word_maps",
        lambda *parts: drawn.append(parts) or plot_word_maps(*parts),
    )
    monkeypatch.setattr(images, "opened", lambda source: read.append(source) or opened(source))
    paths = [str(big), photos[1]]
    actual = caption(pixel_captioner(), pixel_processor(), paths, attention_folder=tmp_path / "maps")
    assert [answer.name for answer in actual] == paths == read
    assert [image.size for image, _, _ in drawn] == [(640, 480), PHOTOS[1].size]
    assert [maps.shape[1:] for _, _, maps in drawn] == [(480, 640), PHOTOS[1].size[::-1]]
    assert [" ".join(words) for _, words, _ in drawn] == [answer.caption for answer in actual]
    assert sorted(path.name for path in (tmp_path / "maps").iterdir()) == ["big.png", "photo1.png"]


def test_a_caption_without_words_has_no_figure(caplog, photos, tmp_path):
    silent = pixel_captioner()
    with torch.no_grad():
        silent.lm_head.bias[silent.config.eos_token_id] += 50
    actual = caption(silent, pixel_processor(), photos[:2], attention_folder=tmp_path / "maps")
    assert actual == [CaptionedImage(path, "", None) for path in photos[:2]]
    assert not list((tmp_path / "maps").iterdir())
    assert [path in record.getMessage() for path, record in zip(photos, caplog.records, strict=False)] == [True, True]
