import json
import shutil

import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from transformers import (
    AutoImageProcessor,
    BertConfig,
    BertModel,
    ConvNextImageProcessor,
    ResNetConfig,
    ResNetForImageClassification,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrImageProcessor,
    YolosConfig,
    YolosForObjectDetection,
)

from hf_ngsan.extraction import load_vision
from hf_ngsan.extraction.vision import load_image_processor
from hf_ngsan.tasks.new_models import new_image_processor
from tests.models.test_backbone_sources import ONE_LAYER, YOLOS
from tests.models.tiny import tiny_captioner
from tests.models.tiny import tiny_processor as text_processor
from tests.tables import each_row

from .tiny import BACKBONE, tiny_processor, tiny_vision

RESNET = {"embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1], "layer_type": "basic"}
DETECTOR = {
    "backbone_config": {
        "model_type": "rt_detr_resnet",
        **RESNET,
        "hidden_sizes": [4, 8, 8],
        "depths": [1, 1, 1],
        "out_features": ["stage1", "stage2", "stage3"],
    },
    "encoder_in_channels": [4, 8, 8],
    "encoder_hidden_dim": 8,
    "encoder_ffn_dim": 8,
    "encoder_attention_heads": 2,
    "decoder_in_channels": [8, 8, 8],
    "decoder_ffn_dim": 8,
    "decoder_layers": 1,
    "decoder_attention_heads": 2,
    "d_model": 8,
    "num_queries": 6,
    "num_denoising": 0,
    "num_labels": 3,
}


@pytest.fixture(scope="module")
def models(vision, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    (folder / "vision").symlink_to(vision)
    tiny_vision().backbone.save_pretrained(folder / "vgg")
    ResNetForImageClassification(ResNetConfig(**RESNET)).save_pretrained(folder / "resnet")
    ConvNextImageProcessor(size={"shortest_edge": 40}, crop_pct=0.875, image_mean=[0.1] * 3).save_pretrained(
        folder / "resnet"
    )
    RTDetrForObjectDetection(RTDetrConfig(**DETECTOR)).save_pretrained(folder / "detector")
    RTDetrImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder / "detector")
    BertModel(
        BertConfig(hidden_size=4, num_hidden_layers=1, num_attention_heads=1, intermediate_size=4)
    ).save_pretrained(folder / "bert")
    captioner = tiny_captioner(vision_config={"backbone_config": BACKBONE, "grid_size": [2, 2]}, visual_feature_size=8)
    captioner.save_pretrained(folder / "captioner")
    processor = text_processor()
    processor.image_processor = tiny_processor()
    processor.save_pretrained(folder / "captioner")
    blind = tiny_captioner()
    blind.save_pretrained(folder / "blind")
    text_processor().save_pretrained(folder / "blind")
    return folder


def test_a_vision_part_and_the_captioner_around_it(models):
    for name in ("vision", "captioner"):
        model, processor = load_vision(models / name)
        assert not model.training and processor.size["height"] == 32
        assert model(torch.rand(1, 3, 32, 32)).visual_features.shape == (1, 4, 8)


def test_a_bare_backbone_becomes_a_grid(models, caplog):
    model, processor = load_vision(models / "vgg", grid_size=[3, 2])
    assert model.config.kind == "grid" and model(torch.rand(1, 3, 32, 32)).visual_features.shape == (1, 6, 8)
    assert "no preprocessor_config.json" in caplog.text and processor.size["height"] == 224
    expected = tiny_vision(grid_size=[3, 2])
    pixels = torch.rand(1, 3, 32, 32)
    torch.testing.assert_close(model(pixels).visual_features, expected(pixels).visual_features)


def test_preprocessing_of_a_classifier_takes_the_whole_image(models):
    model, processor = load_vision(models / "resnet")
    assert model.config.kind == "grid" and model.config.feature_size == 8
    assert (processor.size["height"], processor.size["width"]) == (40, 40)
    assert list(processor.image_mean) == [0.1] * 3 and not processor.do_center_crop


def test_a_detection_model_gives_regions(models):
    model, processor = load_vision(models / "detector", num_regions=4, score_threshold=0.0, suppression_threshold=0.9)
    assert model.config.kind == "regions" and model.config.suppression_threshold == 0.9
    assert processor.size["height"] == 64 and processor.do_normalize is False
    assert model(torch.rand(1, 3, 64, 64)).visual_features.shape[1:] <= (4, 8)


@each_row(
    ("name", "fields", "message"),
    [
        ("absent", {}, "absent"),
        ("bert", {}, "'bert'"),
        ("blind", {}, "blind"),
        ("vision", {"grid_size": [3, 3]}, "--grid-size"),
        ("captioner", {"image_size": 64}, "--image-size"),
        ("captioner", {"num_regions": 3}, "--num-regions"),
        ("vgg", {"score_threshold": 0.5}, "--score-threshold"),
        ("detector", {"num_frames": 3}, "--num-frames"),
        ("detector", {"out_features": ["stage1"]}, "--out-features"),
        ("captioner", {"out_features": ["stage1"]}, "--out-features"),
        ("resnet", {"out_features": ["stage9"]}, "'stage9'"),
    ],
)
def test_what_cannot_be_loaded_is_refused_in_one_sentence(models, name, fields, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        load_vision(models / name, **fields)


def test_sizes_and_frames_are_set_where_they_apply(models, tmp_path):
    model, processor = load_vision(models / "vgg", kind="frames", num_frames=3, image_size=48, grid_size=[2, 2])
    assert model.config.kind == "frames" and processor.num_frames == 3 and processor.size["height"] == 48
    crop = {"do_center_crop": True, "crop_size": {"height": 40, "width": 44}}
    for settings, edge in (({"size": {"shortest_edge": 64, "longest_edge": 44}}, "longest_edge"), (crop, "width")):
        settings["image_processor_type"] = "DetrImageProcessor"
        (tmp_path / "preprocessor_config.json").write_text(json.dumps(settings))
        assert load_image_processor(tmp_path, "regions").size[edge] == 44
    (tmp_path / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match="preprocessor_config"):
        load_image_processor(tmp_path, "regions")


@each_row(
    ("kind", "settings"),
    [
        ({"feature_extractor_type": "YolosFeatureExtractor"}, {"size": 200, "max_size": 333}),
        ({"image_processor_type": "YolosImageProcessor"}, {"size": [96, 128]}),
        ({"image_processor_type": "YolosImageProcessorFast"}, {"image_mean": [0.1] * 3}),
        ({}, {"size": {"shortest_edge": 100, "longest_edge": 150}, "resample": 3}),
    ],
)
def test_the_pixels_of_a_detector_are_those_of_its_own_image_processor(tmp_path, kind, settings):
    YolosForObjectDetection(YolosConfig(**ONE_LAYER, **YOLOS)).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**kind, **settings}))
    loaded_processor = AutoImageProcessor.from_pretrained(tmp_path, backend="pil")
    vision, processor = load_vision(tmp_path)
    for size in ((60, 41), (31, 70), (200, 200)):
        image = Image.linear_gradient("L").resize(size).convert("RGB")
        expected = loaded_processor(image, return_tensors="pt").pixel_values
        for actual in (processor, new_image_processor(vision, None)):
            assert torch.equal(actual(image, return_tensors="pt").pixel_values, expected), size
    with pytest.raises(ValueError, match="16"):
        load_vision(tmp_path, image_size=100)


def test_weights_that_are_missing_are_named(vision, tmp_path):
    shutil.copytree(vision, tmp_path / "vision")
    [file] = (tmp_path / "vision").glob("*.safetensors")
    weights = load_file(file)
    name = sorted(weights)[0]
    save_file({key: weights[key] for key in sorted(weights)[1:]}, file, {"format": "pt"})
    with pytest.raises(ValueError, match=name):
        load_vision(tmp_path / "vision")


def test_a_processor_that_crops_is_refused(models, tmp_path):
    tiny_vision().save_pretrained(tmp_path)
    tiny_processor(do_center_crop=True, crop_size={"height": 16, "width": 16}).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="CaptioningImageProcessor"):
        load_vision(tmp_path)
