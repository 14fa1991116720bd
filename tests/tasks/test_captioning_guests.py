"""Runs of captioners of transformers: resumed, accumulated, partly frozen, with adapters, rewarded by CLIPScore."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_ngsan.loading.models import load_model
from hf_ngsan.tasks import CaptioningConfig, train
from hf_ngsan.training.config import ConfigError
from tests.guests.tiny import photos
from tests.tables import each_row

SPEC = "scenes:size=12,validation=4,images=true,image_size=32"
TEACHER_FORCING = {"stage": "xe"}
UNSCORED = {"validation_split": None}


def config_of(start: Path, folder: Path, training=(), self_critical=(), lora=(), model=(), data=()) -> CaptioningConfig:
    return CaptioningConfig.from_dict(
        {
            "model": {"init_from": str(start), **dict(model)},
            "data": {"spec": SPEC, "max_caption_length": 10, "captions_per_image": 2, **dict(data)},
            "training": {
                "stage": "auto", "epochs": 1, "batch_size": 6, "learning_rate": 0.01, "warmup_epochs": 0,
                "tracker": None, "num_threads": 1, "output_dir": str(folder), **dict(training),
            },
            "self_critical": {
                "epochs": 1, "learning_rate": 0.01, "samples_per_image": 2, "max_new_tokens": 8, **dict(self_critical),
            },
            "lora": dict(lora),
            "evaluation": {"num_beams": 2, "max_new_tokens": 6, "batch_size": 32},
        }
    )  # fmt: skip


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_the_image_encoder_is_frozen_for_self_critical_training_alone(guest, tmp_path):
    train(config_of(guest("git"), tmp_path / "run", self_critical={"freeze_encoder": True}, data=UNSCORED))
    before, after = weights_of(tmp_path / "run" / "xe"), weights_of(tmp_path / "run" / "last")
    kept = {name for name, weights in before.items() if torch.equal(weights, after[name])}
    assert kept >= {name for name in before if name.startswith("git.image_encoder.")}
    assert "output.weight" not in kept


@pytest.mark.parametrize(
    ("name", "targets"),
    [
        ("git", []),
        pytest.param("blip", ["query", "qkv"], marks=pytest.mark.slow),
        pytest.param("blip", [], marks=pytest.mark.slow),
    ],
)
def test_adapters_are_what_peft_adds_to_the_model_and_what_is_merged(guest, tmp_path, name, targets):
    from peft import PeftModel

    lora = {"rank": 2, "alpha": 8.0, "target_modules": targets}
    train(config_of(guest(name), tmp_path / "run", TEACHER_FORCING, lora=lora, data=UNSCORED))
    folder = tmp_path / "run" / "last"
    base, processor = load_model(guest(name), "captioning")
    full, _ = load_model(folder, "captioning")
    before = {key: value.clone() for key, value in base.state_dict().items()}
    adapted = PeftModel.from_pretrained(base, str(folder / "adapter"))
    pixels = processor.image_processor(photos(2), return_tensors="pt")["pixel_values"]
    inputs = {"pixel_values": pixels, "input_ids": torch.tensor([[2, 5, 7]] * 2)}
    with torch.no_grad():
        torch.testing.assert_close(adapted(**inputs).logits, full(**inputs).logits, rtol=1e-4, atol=1e-5)
    changed = {key for key, value in full.state_dict().items() if not torch.equal(value, before[key])}
    assert changed
    assert all(key.endswith(".weight") and (not targets or key.split(".")[-2] in targets) for key in changed)
    assert PeftModel.from_pretrained(load_model(guest(name))[0], str(folder / "adapter")).peft_config["default"].r == 2


@each_row(
    ("change", "name"),
    [
        ({"lora": {"rank": 2, "target_modules": ["quary"]}}, "query"),
        ({"training": {"freeze": ["visoin_model"]}}, "vision_model"),
        ({"training": {"word_dropout": 0.1}}, "training.word_dropout"),
    ],
)
def test_settings_that_a_captioner_cannot_have_are_named(guest, tmp_path, change, name):
    with pytest.raises(ConfigError, match=name):
        train(config_of(guest("blip"), tmp_path / "run", **change))
    assert not (tmp_path / "run").exists()


def test_adapters_need_peft_and_a_model_of_transformers(guest, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_ngsan.training.optimizer.is_peft_available", lambda: False)
    with pytest.raises(ConfigError, match="pip install"):
        train(config_of(guest("blip"), tmp_path / "run", lora={"rank": 2}))


def test_clip_score_takes_part_in_the_reward_of_a_run(guest, tmp_path):
    clip = {"clip_score_model": str(guest("clip")), "clip_score_weight": 2.0, "cider_d_weight": 0.0}
    result = train(config_of(guest("blip"), tmp_path / "run", {"stage": "scst"}, clip, data=UNSCORED))
    assert 0 < result.history[0]["reward"] <= 5
