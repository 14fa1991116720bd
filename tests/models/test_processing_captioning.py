"""The captioners' processor: images, regions, incompatible inputs, and saving with and without images."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor, ImageError
from hf_ngsan.models.processing_captioning import CaptioningProcessor
from hf_ngsan.models.processing_ngsan import NGSANProcessor
from tests.models.tiny import tiny_processor, tiny_tokenizer


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def processor(**size) -> CaptioningProcessor:
    return NGSANProcessor(CaptioningImageProcessor(size=size or {"height": 16, "width": 24}), tiny_tokenizer())


IMAGES = [noise(40, 30), noise(20, 50, 1)]


def test_images_become_pixels():
    made = processor()
    expected = made.image_processor(IMAGES, return_tensors="pt").pixel_values
    assert torch.equal(made(images=IMAGES)["pixel_values"], expected)
    assert torch.equal(made(IMAGES[1])["pixel_values"], expected[1:])
    assert set(made(images=IMAGES)) == {"pixel_values"}
    everything = made(images=IMAGES, text=["a", "a red ball"], captions=["a ball", "a box"])
    assert set(everything) == {"pixel_values", "decoder_input_ids", "decoder_attention_mask", "labels"}
    assert all(isinstance(tensor, torch.Tensor) and len(tensor) == 2 for tensor in everything.values())


def test_boxes_are_divided_by_the_size_of_the_upright_image():
    exif = Image.Exif()
    exif[0x0112] = 6  # stored rotated: 30 wide and 40 high when upright
    turned = noise(40, 30)
    turned.getexif()[0x0112] = exif[0x0112]
    outputs = processor()(images=turned, boxes=[[0, 0, 30, 40], [15, 10, 30, 20]])
    torch.testing.assert_close(outputs["visual_boxes"], torch.tensor([[[0, 0, 1, 1.0], [0.5, 0.25, 1, 0.5]]]))
    assert "attention_mask" not in outputs


def test_boxes_of_cut_images_are_refused():
    cutting = processor(shortest_edge=24)
    cutting.image_processor.crop_size = {"height": 24, "width": 24}
    for changes in ({"do_center_crop": True}, {"images_kwargs": {"do_center_crop": True}}):
        assert cutting(images=IMAGES, **changes)["pixel_values"].shape == (2, 3, 24, 24)
        with pytest.raises(ValueError):
            cutting(images=IMAGES, boxes=[BOX, BOX], **changes)
    cutting.image_processor.do_center_crop = True
    with pytest.raises(ValueError):
        cutting(images=IMAGES[0], visual_boxes=[[0, 0, 1, 1]])


BOX = [[0, 0, 10, 10]]


def test_what_does_not_fit_is_refused():
    wrong = {
        "box to the right": {"boxes": [BOX, [[0, 0, 9, 9], [99, 1, 122, 4]]]},
        **{"box above": {"boxes": [[[0, -3, 10, 0]], BOX]}, "turned box": {"boxes": [BOX, [[9, 0, 3, 10]]]}},
        **{"NaN box": {"boxes": [BOX, [[0, 0, np.nan, 1]]]}, "no boxes of one": {"boxes": [None, BOX]}},
        "three numbers": {"boxes": [[[0, 0, 1]], BOX]},
        **{"boxes of one image": {"boxes": BOX}, "boxes of three images": {"boxes": [BOX] * 3}},
        "boxes within [0, 1] of one image": {"visual_boxes": [[0, 0, 1, 1]]},
        "boxes in pixels": {"visual_boxes": [BOX, BOX]},
        "both boxes": {"visual_boxes": [BOX, BOX], "boxes": [BOX, BOX]},
        "captions of one": {"captions": ["a ball"]},
        "captions in unequal numbers": {"captions": [["a", "red"], ["blue"]]},
        "text of three": {"text": ["a", "b", "c"]},
    }
    made = processor()
    for case, changes in wrong.items():
        try:
            made(images=IMAGES, **changes)
        except ValueError:
            continue
        pytest.fail(case)
    without_images = [
        {"boxes": [BOX]},
        {"visual_features": np.zeros((1, 0, 12))},
        {"visual_features": np.full((1, 1, 12), np.nan)},
        {"visual_features": np.full((1, 1, 12), np.inf)},
        {"boxes": [BOX], "visual_features": np.zeros((1, 1, 12))},
        {"visual_features": np.zeros((2, 1, 12)), "captions": ["a", "red", "ball"]},
        {"visual_features": np.zeros((2, 1, 12)), "text": "a red"},
    ]
    for inputs in without_images:
        with pytest.raises(ValueError):
            made(**inputs)
    with pytest.raises(ImageError, match=r"Image 1 .*gone\.jpg"):
        made(images=[IMAGES[0], "gone.jpg"])


def test_a_processor_without_an_image_processor():
    for made in (NGSANProcessor(tokenizer=tiny_tokenizer()), NGSANProcessor(tiny_tokenizer())):
        assert made.image_processor is None
        assert made.tokenizer is not None
        assert "pixel_values" not in made.model_input_names
        assert "image_processor" not in made.to_dict()
        assert "tokenizer" in repr(made)
        with pytest.raises(ValueError, match="image_processor"):
            made(images=IMAGES)
    with pytest.raises(TypeError):
        NGSANProcessor(CaptioningImageProcessor())
    with pytest.raises(TypeError):
        NGSANProcessor("words.txt", tiny_tokenizer())


def test_it_is_saved_and_loaded_with_and_without_images(tmp_path):
    changes = {"size": {"shortest_edge": 30, "longest_edge": 50}, "do_flip_channel_order": True}
    NGSANProcessor(CaptioningImageProcessor(**changes), tiny_tokenizer()).save_pretrained(tmp_path / "images")
    loaded = NGSANProcessor.from_pretrained(tmp_path / "images")
    assert type(loaded.image_processor) is CaptioningImageProcessor
    assert loaded.image_processor.size == changes["size"]
    assert loaded.image_processor.do_flip_channel_order is True
    NGSANProcessor(tokenizer=tiny_tokenizer()).save_pretrained(tmp_path / "features")
    saved = json.loads((tmp_path / "features" / "processor_config.json").read_text())
    assert saved == {"processor_class": "NGSANProcessor"}  # as before, without images
    loaded = NGSANProcessor.from_pretrained(tmp_path / "features")
    assert loaded.image_processor is None
    assert loaded(text="a red ball")["decoder_input_ids"].shape == (1, 4)


def test_captions_are_labels_and_prefixes_begin_with_the_start_token():
    made = tiny_processor()
    a, red, blue = made.tokenizer.convert_tokens_to_ids(["a", "red", "blue"])
    labels = made(captions=[["a", "red"], ["blue", None]])["labels"]  # rows of one image next to each other
    assert labels.tolist() == [[a, 2], [red, 2], [blue, 2], [-100, -100]]
    assert made(captions=["", None])["labels"].tolist() == [[-100], [-100]]
    batch = made(text=["a red", ""])
    assert batch["decoder_input_ids"].tolist() == [[1, a, red], [0, 0, 1]]
    assert batch["decoder_attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert made(text="")["decoder_input_ids"].tolist() == [[1]]
