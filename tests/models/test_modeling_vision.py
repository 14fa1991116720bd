"""From pixels to visual tokens: grids, regions, frozen backbones, and captioners with a vision encoder."""

import pytest
import torch
from transformers import AutoModel, ResNetConfig, RTDetrConfig, RTDetrResNetConfig

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration, VisionConfig, VisionModel
from hf_ngsan.models.modeling_vision import region_features
from hf_ngsan.models.transformers_backbones import not_suppressed
from tests.extraction.tiny import mean_in_box
from tests.models.tiny import random_boxes
from tests.tables import each_row

VGG = {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]}
SMALL_RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 1, 1], "layer_type": "basic"}
SMALL_DETECTOR = {
    **{"d_model": 32, "encoder_hidden_dim": 32, "encoder_in_channels": [16, 24, 32]},
    **{"decoder_in_channels": [32, 32, 32], "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "encoder_attention_heads": 4},
    **{"decoder_attention_heads": 4, "decoder_layers": 2, "num_queries": 20, "num_labels": 3},
}


def detector_config(kind=RTDetrConfig):
    backbone = RTDetrResNetConfig(**SMALL_RESNET, out_features=["stage2", "stage3", "stage4"])
    return kind(backbone_config=backbone, **SMALL_DETECTOR)


def make_vision(seed: int = 0, **fields) -> VisionModel:
    """A vision encoder whose biases and normalizations differ from their initial values."""
    torch.manual_seed(seed)
    vision = VisionModel(VisionConfig(**{"backbone_config": VGG, **fields})).eval()
    with torch.no_grad():
        for parameter in vision.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    return vision


@pytest.fixture(scope="module")
def detector() -> VisionModel:
    return make_vision(kind="regions", backbone_config=detector_config())


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    return torch.randn(3, 3, 64, 64, generator=torch.Generator().manual_seed(1))


# --- grids ---


def test_a_cell_has_its_place_on_the_map_and_its_box(pixels):
    vision = make_vision()
    feature_map = vision.backbone(pixels).feature_maps[-1]
    output = vision(pixels)
    rows, columns = feature_map.shape[-2:]
    assert output.visual_features.shape == (3, rows * columns, 8)
    for row, column in [(0, 0), (1, 0), (2, 5), (rows - 1, columns - 1)]:
        cell = row * columns + column
        torch.testing.assert_close(output.visual_features[1, cell], feature_map[1, :, row, column])
        expected = [column / columns, row / rows, (column + 1) / columns, (row + 1) / rows]
        assert output.visual_boxes[1, cell].tolist() == pytest.approx(expected)
    assert output.attention_mask.all()


@each_row("grid_size", [None, [3, 5]])
def test_maps_of_several_stages_are_side_by_side_in_the_cells_of_the_last(pixels, grid_size):
    """Compares with cells of the finer map that are averaged one by one."""
    stages = ["stage1", "stage2", "stage4"]
    fields = {"backbone_config": ResNetConfig(**SMALL_RESNET), "out_features": stages}
    vision = make_vision(**fields)
    maps = vision.backbone(pixels).feature_maps
    rows, columns = maps[-1].shape[-2:]
    assert vision.config.feature_size == 8 + 16 + 32
    expected = torch.empty(3, 56, rows, columns)
    channel = 0
    for feature_map in maps:
        high, wide = feature_map.shape[-2] // rows, feature_map.shape[-1] // columns
        for row in range(rows):
            for column in range(columns):
                part = feature_map[:, :, row * high : (row + 1) * high, column * wide : (column + 1) * wide]
                expected[:, channel : channel + part.shape[1], row, column] = part.mean((-1, -2))
        channel += feature_map.shape[1]
    assert channel == 56
    if grid_size is None:
        torch.testing.assert_close(vision(pixels).visual_features, expected.flatten(2).mT)
    else:
        pooled = torch.nn.functional.adaptive_avg_pool2d(expected, grid_size).flatten(2).mT
        torch.testing.assert_close(make_vision(**fields, grid_size=grid_size)(pixels).visual_features, pooled)


def test_features_of_given_boxes():
    feature_map = torch.randn(2, 3, 5, 9, generator=torch.Generator().manual_seed(0))
    boxes = random_boxes(2, 4, generator=torch.Generator().manual_seed(2))
    boxes[0, 0] = torch.tensor([0.0, 0.0, 1.0, 1.0])
    expected = [
        [mean_in_box(maps.numpy(), box.numpy()) for box in row] for maps, row in zip(feature_map, boxes, strict=True)
    ]
    torch.testing.assert_close(region_features(feature_map, boxes), torch.tensor(expected).float(), atol=1e-5, rtol=0)


# --- regions ---


def test_a_threshold_leaves_regions_out_and_keeps_one(detector, pixels, monkeypatch):
    scores = detector.backbone(pixels).logits.sigmoid().amax(-1)
    threshold = float(scores[0].sort().values[-4:-2].mean())
    monkeypatch.setattr(detector.config, "num_regions", 20)
    monkeypatch.setattr(detector.config, "score_threshold", threshold)
    output = detector(pixels)
    expected = (scores >= threshold).sum(-1).clamp(min=1)
    assert output.attention_mask.sum(-1).tolist() == expected.tolist()
    assert output.visual_features.shape[1] == expected.max()
    assert not output.visual_features[output.attention_mask == 0].any()
    monkeypatch.setattr(detector.config, "score_threshold", 1.0)
    assert detector(pixels).attention_mask.tolist() == [[1], [1], [1]]


@each_row("threshold", [0.0, 0.3, 0.6])
def test_suppression_within_a_class(threshold):
    generator = torch.Generator().manual_seed(4)
    boxes = random_boxes(4, 30, generator=generator)
    classes = torch.randint(0, 3, (4, 30), generator=generator)

    def overlap(a, b):
        width, height = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
        shared = max(width, 0) * max(height, 0)
        return shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared)

    kept = not_suppressed(boxes, classes, threshold)
    for image in range(4):
        stays = []
        for query in range(30):
            rivals = [item for item in stays if classes[image, item] == classes[image, query]]
            if all(overlap(boxes[image, item].tolist(), boxes[image, query].tolist()) <= threshold for item in rivals):
                stays.append(query)
        assert kept[image].nonzero().flatten().tolist() == stays
    assert not kept.all()


# --- both ---


@each_row("kind", ["grid", "regions"])
def test_an_image_gives_the_same_tokens_in_any_batch(kind, pixels, detector):
    vision = make_vision() if kind == "grid" else detector
    sizes = [(64, 64), (64, 32), (32, 64)]
    mask = torch.zeros(3, 64, 64, dtype=torch.long)
    for row, (height, width) in enumerate(sizes):
        mask[row, :height, :width] = 1
    together = vision(pixels * mask[:, None] + 5 * (1 - mask[:, None]), mask)
    for row, (height, width) in enumerate(sizes):
        alone = vision(pixels[row : row + 1, :, :height, :width])
        number = alone.attention_mask.shape[1]
        assert together.attention_mask[row].sum() == alone.attention_mask.sum()
        for name in ("visual_features", "visual_boxes"):
            torch.testing.assert_close(together[name][row, :number], alone[name][0], atol=1e-5, rtol=1e-5)
            assert not together[name][row, number:].any()


def test_frozen_means_frozen(tmp_path, pixels):
    batch_norm = {**VGG, "use_batch_norm": True}
    vision = make_vision(backbone_config=batch_norm)
    vision.save_pretrained(tmp_path)
    for model in (vision, AutoModel.from_pretrained(tmp_path)):
        model.train()
        assert model.training
        assert not any(module.training for module in model.backbone.modules())
        assert not any(parameter.requires_grad for parameter in model.parameters())
        assert not model(pixels).visual_features.requires_grad
    free = make_vision(backbone_config=batch_norm, frozen=False).train()
    free(pixels).visual_features.sum().backward()
    assert all(parameter.grad is not None for parameter in free.parameters())
    free.requires_grad_(False).train()  # for a stage of a training
    assert not free(pixels).visual_features.requires_grad
    assert not any(module.training for module in free.backbone.modules())
    free.requires_grad_(True).train()
    assert all(module.training for module in free.backbone.modules())


# --- captioners with a vision encoder ---


@pytest.fixture(scope="module", params=["grid", "regions"])
def captioner(request, detector) -> NGSANForConditionalGeneration:
    torch.manual_seed(6)
    if request.param == "grid":
        vision = {"backbone_config": VGG, "grid_size": [3, 4], "frozen": False}
    else:
        vision = {"kind": "regions", "backbone_config": detector_config(), "num_regions": 6, "score_threshold": 0.012}
    sizes = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = NGSANConfig(**sizes, geometry_hidden_size=4, vision_config=vision, initializer_range=0.5)
    model = NGSANForConditionalGeneration(config).eval()
    with torch.no_grad():
        model.model.vision.backbone.apply(sharpen)
    return model


def sharpen(module: torch.nn.Module):
    """Gives convolutions a bias and a larger gain, so that images and their captions differ."""
    if isinstance(module, torch.nn.Conv2d):
        module.weight.mul_(4)
        if module.bias is not None:
            module.bias.normal_()


@each_row("options", [{}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}])
def test_pixels_give_what_their_visual_tokens_give(captioner, pixels, options):
    tokens = dict(captioner.model.vision(pixels))
    expected = captioner.generate(**tokens, max_new_tokens=6, **options)
    assert torch.equal(captioner.generate(pixel_values=pixels, max_new_tokens=6, **options), expected)
    assert torch.equal(captioner.generate(pixels, max_new_tokens=6, **options), expected)
    labels = torch.tensor([[7, 8, 9, 2]] * 6)  # two captions per image
    logits = captioner(pixel_values=pixels, labels=labels).logits
    torch.testing.assert_close(logits, captioner(**tokens, labels=labels).logits)
    assert (logits[0] - logits[2]).abs().max() > 0.1  # images differ
