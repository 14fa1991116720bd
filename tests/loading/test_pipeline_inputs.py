"""The image-to-text pipeline on raw images: all kinds, batches and workers, attention, and invalid images."""

import io
from pathlib import Path

import datasets
import numpy as np
import pandas
import pytest
import torch
from PIL import UnidentifiedImageError
from transformers import ConvNextImageProcessorPil

from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.models.attention_maps import attention_maps, word_attention
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.processing_ngsan import NGSANProcessor
from tests.data.images.photos import encoded
from tests.models.tiny import random_boxes, tiny_captioner, tiny_tokenizer
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor
from tests.tables import each_row


@pytest.fixture(scope="module")
def pipe() -> CaptioningPipeline:
    return CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor())


@pytest.fixture(scope="module")
def captions() -> list[list[dict]]:
    """The captions of generate() for each photo alone."""
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
        io.BytesIO(data),
    ]
    for kind in kinds:
        assert pipe(kind) == pipe(images=kind) == captions[0]
    assert pipe(kinds, batch_size=4) == [captions[0]] * len(kinds)


@each_row("options", [{}, {"batch_size": 2}, {"batch_size": 8}, {"batch_size": 2, "num_workers": 2}])
def test_many_images(pipe, paths, captions, options):
    assert pipe(paths, **options) == captions
    assert list(pipe((path for path in paths), **options)) == captions
    assert pipe(tuple(PHOTOS), **options) == captions
    rows = datasets.Dataset.from_dict({"image": paths, "label": range(5)}).cast_column("image", datasets.Image())
    assert list(pipe(rows, **options)) == captions
    assert list(pipe(rows["image"], **options)) == captions
    assert list(pipe(rows.cast_column("image", datasets.Image(decode=False)), **options)) == captions
    if "num_workers" not in options:
        assert list(pipe(rows.to_iterable_dataset(), **options)) == captions


def test_collections_keep_their_own_order(pipe, paths, captions):
    series = pandas.Series(paths, index=[4, 3, 2, 1, 0])
    numbered = dict(enumerate(paths))
    for collection in (series, pandas.Series(paths, index=list("abcde")), numbered.values()):
        assert pipe(collection, batch_size=2) == captions
    assert list(pipe(iter(series))) == captions
    assert pipe(()) == pipe([]) == list(pipe(iter([]))) == []


def test_images_of_unequal_size_do_not_change_each_other():
    pipe = CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor(shortest_edge=16, longest_edge=48))
    alone = [pipe(image, num_beams=2) for image in PHOTOS]
    assert pipe(PHOTOS, batch_size=5, num_beams=2) == alone
    assert len({answers[0]["generated_text"] for answers in alone}) >= 3


def test_regions_of_the_image(pipe):
    boxes = np.array([[0, 0, 0.5, 0.5], [0.25, 0.1, 1, 1]])
    batch = pipe.processor(images=PHOTOS[0], visual_boxes=[boxes])
    [expected] = pipe.processor.batch_decode(pipe.model.generate(**batch), skip_special_tokens=True)
    row = {"image": PHOTOS[0], "visual_boxes": boxes}
    assert pipe(row)[0]["generated_text"] == expected
    other = {"image": PHOTOS[1], "visual_boxes": random_boxes(5).numpy()}
    inputs = [row, other, PHOTOS[2], {"image": PHOTOS[3]}]
    assert pipe(inputs, batch_size=4) == [pipe(item) for item in inputs]


def test_prefixes_and_generation_arguments(pipe):
    inputs = [PHOTOS[0], {"image": PHOTOS[1], "text": "two small"}]
    texts = [answers[0]["generated_text"] for answers in pipe(inputs, text="the", batch_size=2)]
    assert texts[0].startswith("the") and texts[1].startswith("two small")
    answers = pipe(PHOTOS, generate_kwargs={"num_beams": 3, "num_return_sequences": 2}, max_new_tokens=3, batch_size=3)
    assert [len(group) for group in answers] == [2] * 5
    assert all(len(answer["generated_text"].split()) <= 3 for group in answers for answer in group)
    options = {"num_beams": 3, "num_return_sequences": 2, "max_new_tokens": 3}
    configured = CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor(), **options)
    assert configured(PHOTOS) == answers


def test_attention_is_aligned_with_words_and_mapped_to_the_image(pipe):
    options = {"return_attention": True, "num_beams": 3, "num_return_sequences": 2, "min_new_tokens": 2}
    for image, answers in zip(PHOTOS, pipe(PHOTOS, batch_size=3, **options), strict=True):
        batch = pipe.processor(image)
        sequences = pipe.model.generate(**batch, num_beams=3, num_return_sequences=2, min_new_tokens=2)
        tokens = pipe.model.model.get_visual_tokens(**{name: batch[name] for name in ("pixel_values",)})
        expected = word_attention(pipe.model, pipe.processor.tokenizer, tokens, sequences)
        assert len(answers) == 2
        for answer, (words, weights) in zip(answers, expected, strict=True):
            assert answer["words"] == words == answer["generated_text"].split()
            assert answer["attention"].shape == (len(words), image.height, image.width)
            maps = attention_maps(weights, tokens["visual_boxes"][0], image.width, image.height)
            np.testing.assert_allclose(answer["attention"], maps, atol=1e-5)
            assert answer["attention"].dtype == np.float32
    [answer] = pipe(PHOTOS[0], return_attention=True, attention_side=24)
    width, height = answer["image"].size
    assert max(width, height) == 24 and answer["attention"].shape == (len(answer["words"]), height, width)


@each_row("setting", ["do_center_crop", "crop_pct"])
def test_maps_and_boxes_of_cut_images_are_refused(setting):
    if setting == "crop_pct":
        image_processor = ConvNextImageProcessorPil(size={"shortest_edge": 24}, crop_pct=0.5)
    else:
        image_processor = CaptioningImageProcessor(do_center_crop=True, crop_size={"height": 24, "width": 24})
    pipe = CaptioningPipeline(
        model=pixel_captioner(), processor=NGSANProcessor(image_processor, tokenizer=tiny_tokenizer())
    )
    assert pipe(PHOTOS[0])[0]["generated_text"]
    for inputs, options in ((PHOTOS[0], {"return_attention": True}), ({"image": PHOTOS[0], "visual_boxes": BOX}, {})):
        with pytest.raises(ValueError, match="CaptioningImageProcessor"):
            pipe(inputs, **options)


def test_attention_to_regions_is_painted_and_that_to_features_alone_is_weights(pipe):
    row = {"image": PHOTOS[0], "visual_boxes": [[0, 0, 0.5, 1], [0.5, 0, 1, 1], [0, 0, 0.5, 0.5]]}
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


BOX = [[0, 0, 0.25, 0.25]]


def bad_inputs(folder: Path) -> dict[int, tuple[object, str]]:
    (folder / "text.jpg").write_text("a dog")
    return {
        1: (encoded(PHOTOS[0].resize((200, 200)), "JPEG")[:600], "Image 1 "),
        3: (str(folder / "text.jpg"), r"text\.jpg"),
        4: (np.full((20, 20, 3), np.nan), "nan"),
        6: ({"image": PHOTOS[0], "visual_boxes": [[0, 0, 1.1, 1]]}, "of image 6 .*1.1"),
        7: ({"image": None}, r"image 7 .*\['image'\]"),
        8: ({"image": PHOTOS[0], "text": 3}, "text of image 8 .*int"),
        9: ({"visual_features": np.zeros((2, 5))}, "visual_features of image 9 .* 5; .*12"),
        10: ({"visual_features": np.zeros((2, 12))}, "visual_boxes .*image 10"),
        11: (None, "mage 11 .*NoneType"),
        12: (torch.rand(20, 20, 3).to_sparse(), "Image 12 "),
        13: (torch.zeros(20, 20, 3, device="meta"), "Image 13 "),
        14: ({"image": PHOTOS[0], "text": "a red zebra of zinc"}, "text of image 14 .*'zebra', 'zinc'"),
        17: ({"image": (folder / "text.jpg").as_uri()}, r"Image 17 \(file://.*text\.jpg\)"),
    }


@each_row("batch_size", [1, 4, 20])
def test_bad_inputs_are_skipped_if_wished_and_named_by_index(pipe, captions, tmp_path, batch_size):
    bad = bad_inputs(tmp_path)
    inputs = [bad[index][0] if index in bad else PHOTOS[index % 5] for index in range(18)]
    answers = pipe(inputs, batch_size=batch_size, on_error="skip")
    for index, answer in enumerate(answers):
        if index not in bad:
            assert answer == captions[index % 5]
            continue
        [actual] = answer
        assert actual["generated_text"] is None
        with pytest.raises(AssertionError, match=bad[index][1]):
            raise AssertionError(actual["error"])
        assert f"mage {index}" in actual["error"]
        with pytest.raises(ValueError, match=bad[index][1]):
            pipe([PHOTOS[0]] * index + [inputs[index]], batch_size=batch_size)
    assert pipe(inputs[1], on_error="skip")[0]["error"].startswith("The image ")


def test_a_stream_that_fails_ends_with_its_own_error(pipe, captions, paths, tmp_path):
    (tmp_path / "text.jpg").write_text("a dog")
    rows = datasets.Dataset.from_dict({"image": [paths[0], str(tmp_path / "text.jpg"), paths[2]]})
    stream = rows.cast_column("image", datasets.Image()).to_iterable_dataset()
    for options in ({}, {"on_error": "skip"}):
        answers = iter(pipe(stream["image"], **options))
        assert next(answers) == captions[0]
        with pytest.raises(UnidentifiedImageError):
            next(answers)
    [first, [damaged], third] = pipe(rows.cast_column("image", datasets.Image()), on_error="skip")
    assert [first, third] == [captions[0], captions[2]] and damaged["error"].startswith("Image 1 ")
    undecoded = stream.cast_column("image", datasets.Image(decode=False))
    answers = list(pipe(undecoded, on_error="skip"))
    assert [answers[0], answers[2]] == [captions[0], captions[2]]


def test_a_text_has_no_more_words_than_are_continued(pipe):
    longest = pipe.model.config.max_position_embeddings - 1
    assert pipe(PHOTOS[0], text="the " * longest, max_new_tokens=1)[0]["generated_text"].startswith("the the")
    for text in ("the " * (longest + 1), "the " * 60_000):
        with pytest.raises(ValueError, match=f" {longest} "):
            pipe(PHOTOS[0], text=text)
    for token in pipe.processor.tokenizer.all_special_tokens:
        with pytest.raises(ValueError, match="text "):
            pipe(PHOTOS[0], text=f"the {token}")


def test_an_input_that_was_read_before_is_taken_as_it_is(pipe, captions):
    reader = pipe.reader()
    items = [reader.try_to_read(photo, place) for place, photo in enumerate(PHOTOS)]
    assert pipe(items, batch_size=2) == captions


def test_settings_that_are_wrong_are_named(pipe):
    with pytest.raises(ValueError, match=r"on_error .*'ignore'"):
        pipe(PHOTOS[0], on_error="ignore")
    with pytest.raises(ValueError, match="images"):
        pipe(PHOTOS[0], images=PHOTOS[1])
    with pytest.raises(ValueError, match=r"text .*list"):
        pipe(PHOTOS, text=["a", "the"])
    blind = CaptioningPipeline(model=tiny_captioner(), processor=pixel_processor())
    with pytest.raises(ValueError, match=r"image.* visual_features"):
        blind({"image": PHOTOS[0]})
