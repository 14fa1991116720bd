"""The decoding of exported captioners against `generate()`, with graphs that PyTorch runs."""

import sys

import numpy as np
import pytest
import torch

from hf_ngsan.exporting import captioner, compare_exported
from tests.exporting.eager import eager_captioner
from tests.models import tiny
from tests.models.rstnet import tiny as tiny_rstnet
from tests.models.spatial_captioner import tiny as tiny_spatial
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor
from tests.tables import each_row

LENGTHS = [3, 5, 1, 4, 6, 2]


def unhurried(model):
    """The captioner with longer captions."""
    if model.lm_head.bias is not None:
        with torch.no_grad():
            model.lm_head.bias[model.config.eos_token_id] -= 2
    return model


def arrays_of(inputs: dict) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in inputs.items()}


def rows_of(inputs: dict) -> list[dict[str, np.ndarray]]:
    """The rows of a batch, without padding."""
    arrays = arrays_of(inputs)
    mask = arrays.pop("attention_mask", np.ones(arrays["visual_features"].shape[:2])) == 1
    return [{name: array[row][real] for name, array in arrays.items()} for row, real in enumerate(mask)]


@each_row(
    ("beams", "changes"),
    [
        (1, {}),
        (3, {}),
        (5, {"length_penalty": 0.0}),
        (3, {"length_penalty": 2.5, "early_stopping": "never"}),
        (2, {"length_penalty": -1.0}),
        (4, {"early_stopping": True}),
        (1, {"suppress_tokens": [3, 7, 9]}),
        (3, {"suppress_tokens": [3, 7, 9]}),
        (3, {"eos_token_id": [2, 5], "max_new_tokens": 3}),
    ],
)
def test_captions_are_those_of_generate(beams, changes, tmp_path, monkeypatch):
    model, processor = unhurried(tiny.tiny_captioner()), tiny.tiny_processor()
    for name, value in changes.items():
        setattr(model.generation_config, name, value)
    exported = eager_captioner(model, processor, tmp_path / "exported", monkeypatch)
    assert_same_captions(model, processor, exported, tiny.random_images(LENGTHS), [beams])


def assert_same_captions(model, processor, exported, inputs: dict, beams: list[int]) -> None:
    rows = rows_of(inputs)
    others, difference = compare_exported(model, processor, exported, rows, beams)
    assert others == dict.fromkeys(beams, 0) and difference < 1e-4
    captions = exported.caption(**{name: [row[name] for row in rows] for name in rows[0]}, num_beams=beams[0])
    assert len(set(captions)) > 1


FEATURES = {
    "all of geometry": lambda: (
        tiny.tiny_captioner(geometric_bias=["content", "query", "key"], absolute_geometry=True, key_norm="layer"),
        tiny.random_images(LENGTHS),
    ),
    "video": lambda: (
        tiny.tiny_captioner(seed=3, geometric_bias=[], temporal_positions=True),
        tiny.random_images(LENGTHS),
    ),
    "spatial": lambda: (tiny_spatial.tiny_captioner(), tiny_spatial.random_cells(LENGTHS)),
    "rstnet": lambda: (tiny_rstnet.tiny_captioner(), tiny.random_images(LENGTHS)),
    "rstnet without boxes": lambda: (tiny_rstnet.tiny_captioner(), tiny_rstnet.random_grids(3)),
    "rstnet as released": lambda: (tiny_rstnet.tiny_captioner(release=True), tiny_rstnet.random_grids(4)),
}


@each_row("name", FEATURES)
def test_every_captioner_of_features(name, tmp_path, monkeypatch):
    model, inputs = FEATURES[name]()
    processor = tiny.tiny_processor()
    exported = eager_captioner(unhurried(model), processor, tmp_path / "exported", monkeypatch)
    assert_same_captions(model, processor, exported, inputs, [1, 3])
    if name == "rstnet without boxes":
        with pytest.raises(ValueError, match="5 visual tokens"):
            exported.caption(visual_features=np.zeros((1, 5, 12)))


def test_images(tmp_path, monkeypatch):
    model, processor = pixel_captioner(), pixel_processor()
    processor.image_processor.do_flip_channel_order = True
    exported = eager_captioner(model, processor, tmp_path / "exported", monkeypatch)
    photos = [*PHOTOS, PHOTOS[0].convert("RGBA"), PHOTOS[1].convert("P"), PHOTOS[2].convert("L")]
    photos[-3].putalpha(77)
    inputs = processor(images=photos)
    np.testing.assert_allclose(exported.prepare(photos)["pixel_values"], inputs["pixel_values"], atol=1e-6)
    for beams in (1, 3):
        expected = processor.batch_decode(model.generate(**inputs, num_beams=beams), skip_special_tokens=True)
        assert exported.caption(photos, num_beams=beams) == expected and len(set(expected)) > 2
    photos[0].save(tmp_path / "photo.png")
    assert exported.caption([tmp_path / "photo.png"]) == exported.caption(photos[:1])


def test_arrays_of_each_image_are_padded(tmp_path, monkeypatch):
    exported = eager_captioner(
        unhurried(tiny.tiny_captioner()), tiny.tiny_processor(), tmp_path / "exported", monkeypatch
    )
    inputs = tiny.random_images(LENGTHS)
    arguments = {name: [row[name] for row in rows_of(inputs)] for name in ("visual_features", "visual_boxes")}
    prepared = exported.prepare(**arguments)
    for name, array in arrays_of(inputs).items():
        np.testing.assert_array_equal(prepared[name], array)
    with pytest.raises(ValueError, match="visual_boxes"):
        exported.caption(visual_features=arguments["visual_features"])
    with pytest.raises((ValueError, TypeError), match="visual_features"):  # ONNX Runtime's, or here PyTorch's
        exported.caption(PHOTOS)


def test_the_program(tmp_path, monkeypatch, capsys):
    """Captions photographs, and files with arrays of features."""
    for number, photo in enumerate(PHOTOS):
        photo.save(tmp_path / f"{number}.png")
        np.savez(tmp_path / f"{number}.npz", **rows_of(tiny.random_images(LENGTHS))[number])
    models = {
        "png": (pixel_captioner(), pixel_processor()),
        "npz": (unhurried(tiny.tiny_captioner()), tiny.tiny_processor()),
    }
    for ending, parts in models.items():
        exported = eager_captioner(*parts, tmp_path / f"exported {ending}", monkeypatch)
        names = [str(tmp_path / f"{number}.{ending}") for number in range(len(PHOTOS))]
        monkeypatch.setattr(captioner, "__file__", str(tmp_path / f"exported {ending}" / "captioner.py"))
        options = ["--num-beams", "2", "--max-new-tokens", "6", "--num-threads", "1", "--batch-size", "2"]
        monkeypatch.setattr(sys, "argv", ["captioner.py", *names, *options])
        captioner.main()
        lines = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
        assert [name for name, _ in lines] == names and len({caption for _, caption in lines}) > 1
        if ending == "png":
            assert [caption for _, caption in lines] == exported.caption(PHOTOS, num_beams=2, max_new_tokens=6)
