"""Training from pixels: the inputs of a captioner with a vision encoder, its trained weights and learning rates."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hf_ngsan.data import DataError, load_data
from hf_ngsan.data.scenes.scoring import SCENE_SCORES
from hf_ngsan.loading.models import load_captioner
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_vision import VisionModel
from hf_ngsan.tasks import evaluate_captioner, train
from hf_ngsan.tasks.caption_rows import rows_for
from hf_ngsan.tasks.captioning_models import new_captioner
from hf_ngsan.training.config import ConfigError, LoraSettings
from hf_ngsan.training.optimizer import adapt, make_optimizer
from tests.tables import each_row
from tests.tasks.tiny import tiny_training_config

BACKBONE = {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1], "use_batch_norm": True}
VISION = {"backbone_config": BACKBONE, "grid_size": [4, 4], "frozen": False}
PIXELS = {"spec": "scenes:size=30,seed=3,images=true,image_size=32", "image_size": 32}
SPATIAL = {
    **{"model_type": "spatial_captioner", "hidden_size": 16, "encoder_layers": 1, "decoder_layers": 1},
    **{"num_attention_heads": 2, "intermediate_size": 32},
}


def pixel_config(output_dir, model=(), **sections):
    sections["data"] = {**PIXELS, **sections.get("data", {})}
    return tiny_training_config(output_dir, {"vision_config": VISION, **dict(model)}, **sections)


def spatial_config(output_dir, **sections):
    config = pixel_config(output_dir, **sections)
    config.model.clear()
    config.model.update(SPATIAL, vision_config=VISION)
    return config


def weights(folder) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    config = pixel_config(tmp_path_factory.mktemp("pixels") / "run", training={"schedule": "constant"})
    return config, train(config)


def test_the_vision_part_is_trained_and_saved(trained):
    config, result = trained
    torch.manual_seed(config.training.seed)
    before, _ = new_captioner(config, ["the red circle"])
    after = weights(result.output_dir / "last")
    moved = {
        name: not torch.equal(after[name], value)
        for name, value in before.state_dict().items()
        # A batch normalization removes a bias before it.
        if name.startswith("model.vision") and name in after and not name.endswith("convolution.bias")
    }
    assert moved
    assert all(moved.values())
    assert all(np.isfinite(entry["loss"]) for entry in result.history)


def test_a_trained_captioner_reads_images_of_any_size(trained):
    _, result = trained
    model, processor = load_captioner(result.output_dir)
    assert dict(processor.image_processor.size) == {"height": 32, "width": 32}
    rows = rows_for(model, processor, load_data("scenes:size=30,seed=3,images=true", "test"), "scenes")
    assert "visual_features" not in rows.column_names
    evaluation = evaluate_captioner(model, processor, rows, extra_scores=SCENE_SCORES, batch_size=4, max_new_tokens=5)
    assert {"cider_d", "symmetric"} <= evaluation.scores.keys()
    alone = evaluate_captioner(model, processor, rows, batch_size=1, max_new_tokens=5)
    assert alone.captions == evaluation.captions


def test_a_frozen_backbone_stays_as_it_was(tmp_path):
    frozen = {**VISION, "frozen": True}
    config = pixel_config(tmp_path / "run", {"vision_config": frozen}, training={"epochs": 1})
    result = train(config)
    torch.manual_seed(config.training.seed)
    model, _ = load_captioner(result.output_dir)
    assert not any(parameter.requires_grad for parameter in model.model.vision.parameters())
    optimizer = make_optimizer(model, config.training, fused=False)
    optimized = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    assert optimized == {parameter for name, parameter in model.named_parameters() if ".vision." not in name}
    statistics = {name: value for name, value in model.state_dict().items() if name.endswith("running_mean")}
    assert statistics
    assert not any(value.any() for value in statistics.values())  # the initial values: no batch has changed them


def test_the_vision_part_has_a_learning_rate_of_its_own(tmp_path):
    config = pixel_config(tmp_path, training={"learning_rate": 0.01, "vision_learning_rate": 0.001})
    model, _ = new_captioner(config, ["a word"])
    optimizer = make_optimizer(model, config.training, fused=False)
    rates = {weight: 0.004 * group["rate_factor"] for group in optimizer.param_groups for weight in group["params"]}
    for name, parameter in model.named_parameters():
        assert rates[parameter] == pytest.approx(0.0004 if ".vision." in name else 0.004), name
    train(config)
    lines = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert lines[0]["learning_rate"] == pytest.approx(0.01)
    with pytest.raises(ConfigError, match="vision_learning_rate"):
        make_optimizer(torch.nn.Linear(1, 1), config.training, fused=False)
    with pytest.raises(ConfigError, match="lora"):
        adapt(model, replace(config, lora=LoraSettings(rank=2)))


@each_row("frozen", [False, True])
def test_the_spatial_captioner_and_self_critical_training(frozen, tmp_path):
    critical = {"epochs": 1, "samples_per_image": 2, "learning_rate": 0.01, "freeze_encoder": frozen}
    data = {"spec": "scenes:size=8,seed=3,images=true,image_size=32", "validation_split": None}
    training = {"epochs": 1, "stage": "auto"}
    config = spatial_config(tmp_path / "run", data=data, training=training, self_critical=critical)
    result = train(config)
    assert [entry["stage"] for entry in result.history] == ["xe", "scst"]
    before, after = weights(tmp_path / "run/xe"), weights(tmp_path / "run/last")
    convolution = next(name for name in after if ".vision." in name and name.endswith("convolution.weight"))
    assert torch.equal(before[convolution], after[convolution]) == frozen
    assert not torch.equal(before["lm_head.weight"], after["lm_head.weight"])


PREPROCESSING = {"image_mean": (0.4, 0.5, 0.6), "image_std": (1.0, 1.0, 1.0), "do_flip_channel_order": True}


@pytest.fixture
def named(tmp_path):
    """A vision encoder whose backbone is trained on 40 x 24 images in the order blue, green, red."""
    vision = VisionModel(new_captioner(pixel_config(tmp_path), ["word"])[0].config.vision_config)
    vision.backbone.save_pretrained(tmp_path / "backbone")
    settings = {"size": {"height": 40, "width": 24}, **PREPROCESSING}
    CaptioningImageProcessor(**settings).save_pretrained(tmp_path / "backbone")
    return {**VISION, "pretrained": str(tmp_path / "backbone")}


@each_row(("image_size", "size"), [(None, {"height": 40, "width": 24}), (32, {"height": 32, "width": 32})])
def test_a_named_backbone_says_how_images_are_prepared(named, tmp_path, image_size, size):
    config = pixel_config(
        tmp_path / "run", {"vision_config": named}, data={"image_size": image_size}, training={"epochs": 1}
    )
    _, processor = load_captioner(train(config).best_dir)
    settings = processor.image_processor.to_dict()
    assert settings["size"] == size
    assert {name: settings[name] for name in PREPROCESSING} == PREPROCESSING


def test_data_without_images_need_features_of_the_right_width(tmp_path):
    config = pixel_config(tmp_path / "run", data={"spec": "scenes:size=30,seed=3"})
    with pytest.raises(DataError, match=r"10.* visual_feature_size=8;"):
        train(config)
    assert not (tmp_path / "run").exists()
