"""`model.init_from` with a vision encoder: which weights and preprocessing are kept, and which are new."""

import pytest
import torch
from safetensors.torch import load_file

from hf_ngsan.loading.models import load_captioner, save_model
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_vgg import NGSANVGGBackbone, NGSANVGGConfig
from hf_ngsan.tasks.captioning_models import attach_vision, new_captioner
from tests.tables import each_row

from .tiny import tiny_training_config

SIDES = {"first": 32, "second": 40}
DESCRIBED = {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]}
WIDTHS = {"first": 8, "second": 8, "wider": 16}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Backbones, and captioners with other weights than all sources: of features, of pixels, with a backbone."""
    folder = tmp_path_factory.mktemp("fine_tuned")
    for seed, (name, width) in enumerate(WIDTHS.items()):
        torch.manual_seed(seed)
        NGSANVGGBackbone(NGSANVGGConfig(hidden_sizes=[4, width], depths=[1, 1])).save_pretrained(folder / name)
        side = SIDES.get(name, 32)
        CaptioningImageProcessor(size={"height": side, "width": side}).save_pretrained(folder / name)
    first = {"pretrained": str(folder / "first"), "grid_size": [2, 2]}
    makings = {
        "blind": {"visual_feature_size": 8},
        "seeing": {"vision_config": first},
        "light": {"vision_config": {**first, "save_frozen_weights": False}},
        "own": {"vision_config": {"backbone_config": DESCRIBED, "grid_size": [2, 2]}},
    }
    for name, model in makings.items():
        captioner, processor = new_captioner(tiny_training_config(folder, model), ["a red circle"])
        if name != "light":
            with torch.no_grad():
                for parameter in captioner.parameters():
                    parameter.add_(0.1)
        if processor.image_processor is not None:
            processor.image_processor.image_mean = [0.1, 0.2, 0.3]
        save_model(captioner, processor, folder / name)
    return folder


def tuned(folder, name, **model):
    config = tiny_training_config(folder)
    config.model.clear()
    config.model.update(init_from=str(folder / name), **model)
    return new_captioner(config, [])


def same_vision(model, expected) -> bool:
    expected = expected.state_dict()
    return all(torch.equal(value, expected[name]) for name, value in model.state_dict().items())


@each_row("name", ["blind", "seeing", "light", "own"])
def test_another_named_backbone_brings_its_weights_and_its_preprocessing(folder, name):
    model, processor = tuned(folder, name, vision_config={"pretrained": str(folder / "second"), "grid_size": [3, 3]})
    assert same_vision(model.model.vision.backbone, NGSANVGGBackbone.from_pretrained(folder / "second"))
    assert processor.image_processor.size["height"] == SIDES["second"]
    assert processor.image_processor.image_mean[0] > 0.4
    assert model.config.vision_config.pretrained == str(folder / "second")
    before, _ = load_captioner(folder / name)
    assert torch.equal(model.lm_head.weight, before.lm_head.weight)


@each_row("name", ["seeing", "light", "own"])
@each_row(
    "vision",
    [
        lambda folder: {"pretrained": str(folder / "first")},
        lambda folder: {},
        lambda folder: {"backbone_config": DESCRIBED},
    ],
)
def test_the_same_backbone_keeps_its_trained_weights_and_its_preprocessing(folder, name, vision):
    vision = vision(folder)
    if name == "own":
        vision.pop("pretrained", None)
    changes = {"frozen": False, "save_frozen_weights": True}
    model, processor = tuned(folder, name, vision_config={**vision, **changes})
    before, _ = load_captioner(folder / name)
    assert same_vision(model.model.vision, before.model.vision)
    assert all(parameter.requires_grad for parameter in model.model.vision.parameters())
    assert list(processor.image_processor.image_mean) == [0.1, 0.2, 0.3]
    assert model.config.vision_config.grid_size == [2, 2]  # unchanged


@each_row("name", ["seeing", "light"])
@each_row("source", ["first", "second"])
def test_a_backbone_can_be_left_out_or_not_of_what_is_saved(folder, tmp_path, name, source, caplog):
    vision = {"pretrained": str(folder / source), "grid_size": [2, 2]}
    for is_kept in (True, False):
        model, processor = tuned(folder, name, vision_config={**vision, "save_frozen_weights": is_kept})
        assert "MISSING" not in caplog.text
        save_model(model, processor, tmp_path / str(is_kept))
        saved = load_file(tmp_path / str(is_kept) / "model.safetensors")
        is_changed = (name, source) == ("seeing", "first")  # whose weights differ from those of the source
        assert any("vision" in weight for weight in saved) == (is_kept or is_changed)
        loaded, _ = load_captioner(tmp_path / str(is_kept))
        assert same_vision(loaded.model.vision, model.model.vision)
        model.config.vision_config.save_frozen_weights = not is_kept
        assert model.model.vision.config.save_frozen_weights is not is_kept


def test_a_vision_encoder_is_attached_to_a_captioner_of_its_features_alone(folder):
    """The provenance of the captioner's features is unknown, so only their dimension is compared."""
    for name, backbone, options, named in (
        ("seeing", "first", {}, "already"),
        ("blind", "first", {"leave_out_backbone": True}, "local folder"),
        ("blind", "wider", {}, "dimension of .* 16.* 8"),
    ):
        with pytest.raises(ValueError, match=named):
            attach_vision(folder / name, folder / backbone, grid_size=[2, 2], **options)
    model, processor = attach_vision(folder / "blind", folder / "first", grid_size=[2, 2])
    assert processor.image_processor.size.height == SIDES["first"]
    blind = load_captioner(folder / "blind")[0].state_dict()
    assert all(torch.equal(model.state_dict()[name], weight) for name, weight in blind.items())
