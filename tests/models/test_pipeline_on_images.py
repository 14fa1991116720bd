"""The image-to-text pipeline on raw images: every kind, batches and workers, attention, and images that are none."""

import io
import os
import warnings
from pathlib import Path

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import Dataset
from transformers import pipeline

import hf_ngsan
from hf_ngsan.models.attention_maps import attention_maps
from hf_ngsan.models.images import ImageError
from hf_ngsan.models.pipeline_image_to_text import ImageToTextPipeline
from tests.models.test_visual import detector_config
from tests.models.tiny import random_boxes, tiny_captioner, tiny_processor
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor


@pytest.fixture(scope="module")
def pipe() -> ImageToTextPipeline:
    return ImageToTextPipeline(model=pixel_captioner(), processor=pixel_processor())


@pytest.fixture(scope="module")
def captions() -> list[list[dict]]:
    """What generate() says about each photo alone."""
    model, reader = pixel_captioner(), pixel_processor()
    texts = [reader.batch_decode(model.generate(**reader(photo)), skip_special_tokens=True) for photo in PHOTOS]
    assert len({text for [text] in texts}) >= 3
    return [[{"generated_text": text}] for [text] in texts]


@pytest.fixture(scope="module")
def paths(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("photos")
    for index, image in enumerate(PHOTOS):
        image.save(folder / f"{index}.png")
    return [str(folder / f"{index}.png") for index in range(len(PHOTOS))]


def test_every_kind_of_image(pipe, paths, captions):
    data = Path(paths[0]).read_bytes()
    array = np.array(PHOTOS[0])
    kinds = [
        paths[0],
        Path(paths[0]),
        PHOTOS[0],
        data,
        memoryview(data),
        array,
        torch.from_numpy(array).permute(2, 0, 1),
        {"bytes": data, "path": None},
        {"image": paths[0]},
        {"image": {"bytes": data, "path": None}, "captions": ["a ball"]},
        {"image": PHOTOS[0], "visual_features": None},
    ]
    for kind in kinds:
        assert pipe(kind) == captions[0]
    assert pipe(kinds, batch_size=4) == [captions[0]] * len(kinds)


def test_arrays_of_several_images_are_a_list(pipe):
    arrays = np.stack([np.asarray(image.resize((32, 24))) for image in PHOTOS])
    assert pipe(arrays, batch_size=2) == [pipe(array) for array in arrays]
    assert pipe(torch.from_numpy(arrays).permute(0, 3, 1, 2)) == [pipe(array) for array in arrays]


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}, {"batch_size": 8}, {"batch_size": 2, "num_workers": 2}])
def test_many_images(pipe, paths, captions, options):
    assert pipe(paths, **options) == captions
    assert list(pipe((path for path in paths), **options)) == captions
    assert list(pipe(tuple(PHOTOS), **options)) == captions
    rows = datasets.Dataset.from_dict({"image": paths, "label": range(5)}).cast_column("image", datasets.Image())
    assert list(pipe(rows, **options)) == captions
    assert list(pipe(rows["image"], **options)) == captions
    assert list(pipe(rows.cast_column("image", datasets.Image(decode=False)), **options)) == captions
    if "num_workers" not in options:
        assert list(pipe(rows.to_iterable_dataset(), **options)) == captions


def test_batches_are_generated_together(pipe, paths, monkeypatch):
    sizes, generate = [], pipe.model.generate
    monkeypatch.setattr(
        pipe.model, "generate", lambda **inputs: sizes.append(len(inputs["pixel_values"])) or generate(**inputs)
    )
    pipe(paths, batch_size=2)
    assert sizes == [2, 2, 1]


def test_images_of_unequal_size_do_not_change_each_other():
    pipe = ImageToTextPipeline(model=pixel_captioner(), processor=pixel_processor(shortest_edge=16, longest_edge=48))
    alone = [pipe(image, num_beams=2) for image in PHOTOS]
    assert pipe(PHOTOS, batch_size=5, num_beams=2) == alone
    assert len({answers[0]["generated_text"] for answers in alone}) >= 3


class ByProcess(Dataset):
    """Says in an error which process has asked for an image."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise ValueError(f"process {os.getpid()}")


def test_workers_read_the_images(pipe):
    errors = [answers[0]["error"] for answers in pipe(ByProcess(), num_workers=2, on_error="skip")]
    assert len(set(errors)) == 2
    assert f"process {os.getpid()}" not in errors
    assert [answers[0]["error"] for answers in pipe(ByProcess(), on_error="skip")] == [f"process {os.getpid()}"] * 4


def test_regions_of_the_image(pipe):
    boxes = np.array([[0, 0, 20, 15], [10, 3, 40, 30]])
    batch = pipe.processor(images=PHOTOS[0], regions=boxes)
    [expected] = pipe.processor.batch_decode(pipe.model.generate(**batch), skip_special_tokens=True)
    row = {"image": PHOTOS[0], "regions": boxes}
    assert pipe(row)[0]["generated_text"] == expected
    other = {"image": PHOTOS[1], "visual_boxes": random_boxes(5).numpy()}
    inputs = [row, other, PHOTOS[2], {"image": PHOTOS[3]}]
    assert pipe(inputs, batch_size=4) == [pipe(one) for one in inputs]


def test_prefixes_and_generation_arguments(pipe):
    inputs = [PHOTOS[0], {"image": PHOTOS[1], "text": "two small"}]
    texts = [answers[0]["generated_text"] for answers in pipe(inputs, text="the", batch_size=2)]
    assert texts[0].startswith("the") and texts[1].startswith("two small")
    answers = pipe(PHOTOS, generate_kwargs={"num_beams": 3, "num_return_sequences": 2}, max_new_tokens=3, batch_size=3)
    assert [len(of_photo) for of_photo in answers] == [2] * 5
    assert all(len(answer["generated_text"].split()) <= 3 for of_photo in answers for answer in of_photo)


def test_attention_is_aligned_with_words_and_mapped_to_the_image(pipe):
    options = {"return_attention": True, "num_beams": 3, "num_return_sequences": 2, "min_new_tokens": 2}
    for image, answers in zip(PHOTOS, pipe(PHOTOS, batch_size=3, **options), strict=True):
        batch = pipe.processor(image)
        sequences = pipe.model.generate(**batch, num_beams=3, num_return_sequences=2, min_new_tokens=2)
        tokens = pipe.model.model.look_at(**{name: batch[name] for name in ("pixel_values",)})
        expected = pipe.model.word_attention(pipe.processor.tokenizer, tokens, sequences)
        assert len(answers) == 2
        for answer, (words, weights) in zip(answers, expected, strict=True):
            assert answer["words"] == words == answer["generated_text"].split()
            assert answer["attention"].shape == (len(words), image.height, image.width)
            maps = attention_maps(weights, tokens["visual_boxes"][0], image.width, image.height)
            np.testing.assert_allclose(answer["attention"], maps, atol=1e-5)
            assert answer["attention"].dtype == np.float32


def test_attention_to_regions_is_painted_and_that_to_features_alone_is_weights(pipe):
    row = {"image": PHOTOS[0], "regions": [[0, 0, 20, 30], [20, 0, 40, 30.0], [0, 0, 20, 15]]}
    [answer] = pipe(row, return_attention=True)
    left, right = answer["attention"][:, 20, 5], answer["attention"][:, 20, 30]
    np.testing.assert_allclose(answer["attention"][:, 5, 5] + right, 1, atol=1e-5)
    assert (answer["attention"][:, 5, 5] >= left).all()
    features = {"visual_features": np.random.rand(7, 12), "visual_boxes": random_boxes(7).numpy()}
    [answer] = pipe(features, return_attention=True)
    assert answer["attention"].shape == (len(answer["words"]), 7)
    np.testing.assert_allclose(answer["attention"].sum(1), 1, atol=1e-5)
    [mapped] = pipe({**features, "image": PHOTOS[1]}, return_attention=True)
    maps = attention_maps(answer["attention"], features["visual_boxes"], *PHOTOS[1].size)
    np.testing.assert_allclose(mapped["attention"], maps, atol=1e-5)


def test_a_captioner_of_detected_regions():
    vision = {"kind": "regions", "backbone_config": detector_config(), "num_regions": 6, "suppression_threshold": 0.9}
    model = tiny_captioner(vision_config=vision, visual_feature_size=None)
    pipe = ImageToTextPipeline(model=model, processor=pixel_processor(height=64, width=64))
    answers = pipe(PHOTOS, batch_size=5, return_attention=True, min_new_tokens=3)
    for image, [answer] in zip(PHOTOS, answers, strict=True):
        [alone] = pipe(image, return_attention=True, min_new_tokens=3)
        assert answer["words"] == alone["words"] == answer["generated_text"].split()
        assert answer["attention"].shape == (len(answer["words"]), image.height, image.width)
        np.testing.assert_allclose(answer["attention"], alone["attention"], atol=1e-4)
        assert answer["attention"].min() >= 0 and 0 < answer["attention"].max() <= 1 + 1e-5
    with pytest.raises(ValueError, match="detects its regions itself"):
        pipe({"image": PHOTOS[0], "regions": [[0, 0, 9, 9]]})


def test_without_attention_the_answers_are_text_alone(pipe):
    assert set(pipe(PHOTOS[0], return_attention=False)[0]) == {"generated_text"}


def bad_inputs(folder: Path) -> dict[int, tuple[object, str]]:
    buffer = io.BytesIO()
    PHOTOS[0].resize((200, 200)).save(buffer, "JPEG")
    (folder / "text.jpg").write_text("a dog")
    return {
        1: (buffer.getvalue()[:600], "is damaged or cut off"),
        3: (str(folder / "text.jpg"), r"\(.*text\.jpg\) is not an image"),
        4: (np.full((20, 20, 3), np.nan), "NaN"),
        6: ({"image": PHOTOS[0], "regions": [[0, 0, 41, 30]]}, r"Box 0 of image 6, \[0.0, 0.0, 41.0, 30.0\], reaches"),
        7: ({"image": None}, r"takes an image, .* for image 7 it got a mapping with \['image'\]"),
        8: ({"image": PHOTOS[0], "text": 3}, "text of image 8 is int"),
        9: ({"visual_features": np.zeros((2, 5))}, "visual_features of image 9 are 5 wide"),
        10: ({"visual_features": np.zeros((2, 12))}, "visual_boxes are missing for image 10"),
        11: (None, "for image 11|Image 11 is of type NoneType"),
    }


@pytest.mark.parametrize("batch_size", [1, 4, 20])
def test_bad_inputs_are_skipped_if_wished_and_named_by_index(pipe, captions, tmp_path, batch_size):
    bad = bad_inputs(tmp_path)
    inputs = [bad[index][0] if index in bad else PHOTOS[index % 5] for index in range(13)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers = pipe(inputs, batch_size=batch_size, on_error="skip")
    for index, answer in enumerate(answers):
        if index not in bad:
            assert answer == captions[index % 5]
            continue
        [found] = answer
        assert found["generated_text"] is None
        with pytest.raises(AssertionError, match=bad[index][1]):
            raise AssertionError(found["error"])
        assert f"mage {index}" in found["error"]
        with pytest.raises(ValueError, match=bad[index][1]):
            pipe([PHOTOS[0]] * index + [inputs[index]], batch_size=batch_size)
    assert pipe(inputs[1], on_error="skip")[0]["error"].startswith("The image is damaged or cut off")


def test_a_data_set_that_decodes_its_images_names_the_damaged_one(pipe, captions, paths, tmp_path):
    (tmp_path / "text.jpg").write_text("a dog")
    rows = datasets.Dataset.from_dict({"image": [paths[0], str(tmp_path / "text.jpg"), paths[2]]})
    rows = rows.cast_column("image", datasets.Image())
    with pytest.raises(ImageError, match=r"Image 1 cannot be read: .*text\.jpg"):
        list(pipe(rows))
    answers = list(pipe(rows, on_error="skip", batch_size=3))
    assert [answers[0], answers[2]] == [captions[0], captions[2]]
    assert answers[1][0]["generated_text"] is None


def test_errors_of_workers_are_one_sentence_too(pipe, paths):
    with pytest.raises(ImageError) as caught:
        pipe([*paths, "gone.jpg"], num_workers=2, batch_size=2)
    assert str(caught.value) == "Image 5 (gone.jpg) does not exist."
    with pytest.raises(ImageError, match=r"^The image \(gone\.jpg\) does not exist\.$"):
        pipe("gone.jpg")


def test_settings_that_are_wrong_are_named(pipe):
    with pytest.raises(ValueError, match="on_error is 'ignore'; it must be one of 'raise', 'skip'"):
        pipe(PHOTOS[0], on_error="ignore")
    with pytest.raises(ValueError, match="The text of the image is int, not a string"):
        pipe(PHOTOS[0], text=3)
    with pytest.raises(
        ValueError, match=r"takes an image, a mapping with image, or .* it got a mapping with \['photo'\]"
    ):
        pipe({"photo": PHOTOS[0]})
    without = ImageToTextPipeline(model=pixel_captioner(), processor=tiny_processor())
    with pytest.raises(ValueError, match="its processor has no image processor"):
        without(PHOTOS[0])
    blind = ImageToTextPipeline(model=tiny_captioner(), processor=pixel_processor())
    with pytest.raises(ValueError, match=r"takes a mapping with visual_features .* it got a mapping with \['image'\]"):
        blind({"image": PHOTOS[0]})


@pytest.mark.parametrize("task", ["image-to-text", "image-text-to-text"])
def test_pipeline_by_task(task, captions, paths, tmp_path):
    pixel_captioner().save_pretrained(tmp_path)
    pixel_processor().save_pretrained(tmp_path)
    made = pipeline(task, model=str(tmp_path))
    assert type(made) is hf_ngsan.ImageToTextPipeline
    assert made(paths, batch_size=2) == captions


DATA = os.environ.get("HF_NGSAN_TEST_DATA")


@pytest.mark.skipif(not DATA, reason="HF_NGSAN_TEST_DATA names no folder with the photos")
def test_photos_of_coco_are_captioned_without_a_warning(pipe):
    paths = sorted(Path(DATA, "data/coco_photos/images").glob("*.jpg"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        answers = pipe(paths, batch_size=16)
    assert len(answers) == 96
    assert all(answer["generated_text"] for [answer] in answers)
