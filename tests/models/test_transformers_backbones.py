"""Patch encoders (CLIP, SigLIP, ViT, DINOv2, ...) as vision encoders: the cell and the box of each token."""

import shutil

import pytest
import torch
from transformers import (
    AutoModel,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPVisionModel,
    CLIPVisionModelWithProjection,
    SiglipConfig,
    SiglipImageProcessor,
    SiglipModel,
    SiglipVisionModel,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from hf_ngsan.extraction import load_vision
from hf_ngsan.loading.provenance import vision_provenance
from hf_ngsan.models.modeling_vision import cell_boxes
from hf_ngsan.models.transformers_backbones import PATCH_ENCODERS
from tests.models.tiny import pretrained_vision
from tests.tables import each_row

LAYERS = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
PATCHES = {**LAYERS, "image_size": 32, "patch_size": 8}
CLIP = {"model_type": "clip_vision_model", **PATCHES}
TEXT = {**LAYERS, "vocab_size": 9, "bos_token_id": 1, "eos_token_id": 2}
DINO = {name: value for name, value in PATCHES.items() if name != "intermediate_size"}
BEFORE = {**{name: number for name, (number, _) in PATCH_ENCODERS.items()}, "dinov2": 1, "dinov2_with_registers": 4}
MORE = {"dinov2_with_registers": {"num_register_tokens": 3}}
INTERPOLATED = {"dinov2", "dinov2_with_registers"}
"""Families that interpolate their position embeddings by default."""


def lively(model):
    """A model whose normalizations and embeddings differ from their initial values."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def tiny_encoder(model_type: str, **fields):
    torch.manual_seed(0)
    sizes = DINO if model_type in INTERPOLATED else PATCHES
    return lively(AutoModel.from_config(CONFIG_MAPPING[model_type](**sizes, **MORE.get(model_type, {}), **fields)))


def write_clip(folder):
    """A complete CLIP with the preprocessing of CLIP, which crops."""
    torch.manual_seed(0)
    full = lively(
        CLIPModel(CLIPConfig(vision_config={**PATCHES, "projection_dim": 8}, text_config=TEXT, projection_dim=8))
    )
    full.save_pretrained(folder)
    side = {"height": 32, "width": 32}
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=side).save_pretrained(folder)
    return full


def write_siglip(folder):
    torch.manual_seed(0)
    full = lively(SiglipModel(SiglipConfig(vision_config=PATCHES, text_config=TEXT)))
    full.save_pretrained(folder)
    SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return full


@pytest.fixture(scope="module")
def pixels() -> torch.Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def families(tmp_path_factory) -> dict:
    """For every family its name, its encoder in transformers, and the encoder's folder."""
    actual = {}
    for name in BEFORE:
        folder, encoder = tmp_path_factory.mktemp("encoder"), tiny_encoder(name)
        encoder.save_pretrained(folder)
        actual[name] = name, encoder, folder
    return actual


every_family = each_row("name", sorted(BEFORE))


@every_family
def test_a_cell_is_its_patch(families, name, pixels):
    name, encoder, folder = families[name]
    vision = pretrained_vision(folder)
    output = vision(pixels)
    states = encoder(pixels).last_hidden_state
    assert states.shape[1] == 16 + BEFORE[name] and output.visual_features.shape == (2, 16, 16)
    torch.testing.assert_close(output.visual_features, states[:, BEFORE[name] :])
    assert output.visual_boxes[1].tolist() == [
        [column / 4, row / 4, (column + 1) / 4, (row + 1) / 4] for row in range(4) for column in range(4)
    ]
    assert vision.config.kind == "grid" and vision.config.feature_size == 16


@every_family
def test_another_size_interpolates_positions_and_a_rest_is_in_no_box(families, name):
    """37 x 45 pixels contain 4 x 5 complete patches of 8."""
    name, encoder, folder = families[name]
    pixels = torch.randn(1, 3, 37, 45, generator=torch.Generator().manual_seed(2))
    output = pretrained_vision(folder)(pixels)
    asked_for = {} if name in INTERPOLATED else {"interpolate_pos_encoding": True}
    torch.testing.assert_close(
        output.visual_features, encoder(pixels, **asked_for).last_hidden_state[:, BEFORE[name] :]
    )
    corners = torch.tensor([40 / 45, 32 / 37, 40 / 45, 32 / 37])
    torch.testing.assert_close(output.visual_boxes[0], cell_boxes(4, 5) * corners)


# --- folders ---


@each_row(
    ("write", "part"),
    [(write_clip, CLIPVisionModel), (write_clip, CLIPVisionModelWithProjection), (write_siglip, SiglipVisionModel)],
)
def test_a_whole_model_and_its_vision_part_give_equal_features(write, part, pixels, tmp_path):
    full = write(tmp_path / "whole")
    part.from_pretrained(tmp_path / "whole").save_pretrained(tmp_path / "alone")
    shutil.copy(tmp_path / "whole" / "preprocessor_config.json", tmp_path / "alone")
    loaded = [load_vision(tmp_path / name) for name in ("whole", "alone")]
    first, second = (vision(pixels).visual_features for vision, _ in loaded)
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(first, full.vision_model(pixels).last_hidden_state[:, -16:])
    expected, actual = (vision_provenance(*item)["checksums"] for item in loaded)
    assert expected == actual
    other = load_vision(tmp_path / "whole", out_features=[-2])
    assert vision_provenance(*other)["checksums"]["config"] != expected["config"]
    _, processor = loaded[0]  # the square of 32 x 32 pixels is the complete image, without cropping
    assert (processor.size["height"], processor.size["width"]) == (32, 32) and not processor.do_center_crop
