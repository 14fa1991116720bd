"""Backbones converted from detectron2's detectors give the outputs of detectron2."""

import convert_grid_feats_backbone as script
import numpy as np
import pytest
import torch
from PIL import Image
from state_dicts import save

from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_resnext import NGSANResNeXtConfig
from tests.conversion.layouts import DEPTHS, HEADS, assert_same_map, detectron2_map, detectron2_state_dict
from tests.models.tiny import pretrained_vision
from tests.tables import each_row

DEPTHS_OF_TINY = (2, 1, 2, 2)
MEAN, STD = [103.53, 116.28, 123.675], [57.375, 57.12, 58.395]


def tiny_config(**fields) -> NGSANResNeXtConfig:
    sizes = {"hidden_sizes": (8, 16, 24, 32), "embedding_size": 4, "groups": 2, "width_per_group": 2}
    return NGSANResNeXtConfig(depths=DEPTHS_OF_TINY, **sizes, frozen_batch_norm=True, **fields)


def tiny_detector(**options) -> dict[str, torch.Tensor]:
    return detectron2_state_dict(DEPTHS_OF_TINY, groups=2, width=2, sizes=(8, 16, 24, 32), stem=4, **options)


@pytest.mark.parametrize(
    ("name", "depth", "groups", "width"),
    [
        ("R-50", 50, 1, 64),
        pytest.param("X-101", 101, 32, 8, marks=pytest.mark.slow),
        pytest.param("X-152", 152, 32, 8, marks=pytest.mark.slow),
    ],
)
def test_the_published_architectures(name, depth, groups, width):
    weights, images = detectron2_state_dict(DEPTHS[depth], groups, width), torch.randn(1, 3, 64, 96)
    conversion = script.convert_checkpoint(name, weights)
    expected = detectron2_map(weights, images, DEPTHS[depth], groups, stride_in_1x1=name == "R-50")
    assert_same_map(conversion.model, expected, images)
    assert conversion.left_out == HEADS


@each_row("stride_in_1x1", [False, True])
@each_row("last_stage_in_heads", [False, True])
def test_variants(stride_in_1x1, last_stage_in_heads):
    weights, images = tiny_detector(last_stage_in_heads=last_stage_in_heads), torch.randn(2, 3, 48, 70)
    conversion = script.convert_weights(tiny_config(stride_in_1x1=stride_in_1x1), weights)
    assert_same_map(conversion.model, detectron2_map(weights, images, DEPTHS_OF_TINY, 2, stride_in_1x1), images)
    assert conversion.left_out == HEADS


@each_row(
    ("saved", "std", "expected_mean", "expected_std"),
    [
        ({}, script.UNIT_STD, MEAN, [1.0, 1.0, 1.0]),
        ({}, script.PIXEL_STDS["X-101"], MEAN, STD),
        ({"pixel_mean": torch.tensor([[[1.0]], [[2.0]], [[3.0]]])}, STD, [1.0, 2.0, 3.0], STD),
    ],
)
def test_the_folder_reads_photos_as_the_detector_does(saved, std, expected_mean, expected_std, tmp_path):
    save(script.convert_weights(tiny_config(), {**tiny_detector(), **saved}, std), tmp_path / "backbone")
    processor = CaptioningImageProcessor.from_pretrained(tmp_path / "backbone")
    red_green_blue = np.array([200, 100, 50], dtype=np.uint8)
    actual = processor(np.tile(red_green_blue, (480, 640, 1)), return_tensors="pt").pixel_values
    assert actual.shape == (1, 3, 600, 800)
    blue_green_red = torch.tensor([50.0, 100.0, 200.0])
    expected = (blue_green_red - torch.tensor(expected_mean)) / torch.tensor(expected_std)
    torch.testing.assert_close(actual[0, :, 300, 400], expected)
    assert processor(np.zeros((200, 900, 3), dtype=np.uint8)).pixel_values[0].shape == (3, 222, 1000)


def test_a_photo_gives_the_features_that_the_authors_pipeline_gives(tmp_path):
    """Each step of detectron2: Pillow's bilinear resizing of 8-bit pixels, BGR, mean, deviation, backbone, pooling."""
    weights = tiny_detector()
    save(script.convert_weights(tiny_config(), weights, STD), tmp_path / "backbone")
    colours = np.random.default_rng(0).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    photo = Image.fromarray(colours).resize((640, 425), Image.Resampling.BICUBIC)
    photo.save(tmp_path / "photo.png")

    blue_green_red = np.asarray(photo.resize((904, 600), Image.Resampling.BILINEAR))[:, :, ::-1].astype(np.float32)
    pixels = torch.from_numpy((blue_green_red - np.float32(MEAN)) / np.float32(STD))
    grid = detectron2_map(weights, pixels.permute(2, 0, 1)[None], DEPTHS_OF_TINY, 2)
    expected = torch.nn.functional.adaptive_avg_pool2d(grid, 7).flatten(2).mT

    processor = CaptioningImageProcessor.from_pretrained(tmp_path / "backbone")
    vision = pretrained_vision(tmp_path / "backbone", grid_size=[7, 7])
    actual = vision(**processor(tmp_path / "photo.png", return_tensors="pt")).visual_features
    assert expected.std(dim=1).mean() > 0.01, "all cells alike would show nothing"
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)
