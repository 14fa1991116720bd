"""Registered model types of other packages have pipelines, are saved with code, and are trained like ours."""

import json
from pathlib import Path

import pytest
import torch

from hf_ngsan import register_model_type, registry, save_for_hub
from hf_ngsan.loading.hub import SELF_TEST
from hf_ngsan.tasks.captioning_models import new_captioner
from hf_ngsan.tasks.registry import TASKS, task_class_of
from tests.loading.test_hub import result_of
from tests.models.tiny import tiny_config, tiny_processor
from tests.outside.configuration_outside import OutsideCaptionerConfig, OutsideLanguageModelConfig
from tests.outside.modeling_outside import OutsideCaptioner, OutsideLanguageModel
from tests.outside.processing_outside import OutsideProcessor
from tests.tables import each_row
from tests.tasks.tiny import tiny_training_config


def captioner() -> OutsideCaptioner:
    torch.manual_seed(0)
    return OutsideCaptioner(OutsideCaptionerConfig(**{**tiny_config().to_dict(), "loudness": 2.0})).eval()


def test_a_registered_model_type_belongs_to_its_task(monkeypatch, tmp_path):
    monkeypatch.setattr(registry, "register", lambda: None)  # transformers cannot unregister them
    for config, task in ((OutsideCaptionerConfig, "captioning"), (OutsideLanguageModelConfig, "rhyming")):
        monkeypatch.setitem(registry.MODEL_TYPES, config.model_type, registry.ModelType(config.__module__))
        register_model_type(config, task=task)
    assert OutsideCaptionerConfig.model_type in registry.own_model_types("captioning")
    assert registry.own_model_types("rhyming") == ("outside_language_model",)
    monkeypatch.setitem(TASKS, "rhyming", int)
    assert task_class_of({"model_type": "outside_language_model"}) is int
    assert task_class_of({"model_type": "outside_captioner"}) is task_class_of({"model_type": "ngsan"})
    fields = {"model_type": "outside_captioner", "loudness": 3.0, "visual_feature_size": 12}
    model, processor = new_captioner(tiny_training_config(tmp_path, fields), ["a word"])
    assert (type(model), type(processor)) == (OutsideCaptioner, OutsideProcessor)
    assert model.model.decoder.layers[-1].loudness == 3.0


@pytest.mark.slow
def test_code_of_another_package_is_saved_with_a_checkpoint(tmp_path):
    model, tokenizer = OutsideLanguageModel(OutsideLanguageModelConfig()), tiny_processor().tokenizer
    save_for_hub(model, tokenizer, tmp_path / "with")
    save_for_hub(model, None, tmp_path / "without")
    code = {"configuration_outside.py", "modeling_outside.py"}
    weights = {"config.json", "model.safetensors", SELF_TEST}
    names = {folder: {path.name for path in (tmp_path / folder).iterdir()} for folder in ("with", "without")}
    assert names["without"] == code | weights
    assert names["with"] == code | weights | {"tokenizer.json", "tokenizer_config.json"}
    loaded = result_of(
        "import json\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n"
        f"model = AutoModelForCausalLM.from_pretrained({str(tmp_path / 'with')!r}, trust_remote_code=True)\n"
        f"tokenizer = AutoTokenizer.from_pretrained({str(tmp_path / 'with')!r}, trust_remote_code=True)\n"
        "print(json.dumps([type(model).__module__.split('.')[0], len(tokenizer)]))",
        tmp_path,
    )
    assert loaded == ["transformers_modules", len(tokenizer)]


def test_a_captioner_of_another_package_needs_its_processor_to_be_saved(tmp_path):
    for processor, name in (
        (None, "None"),
        (tiny_processor(), "NGSANProcessor"),
        (tiny_processor().tokenizer, "Token"),
    ):
        with pytest.raises(ValueError, match=name):
            save_for_hub(captioner(), processor, tmp_path / "captioner")
    save_for_hub(captioner(), OutsideProcessor(tokenizer=tiny_processor().tokenizer), tmp_path / "captioner")
    assert Path(tmp_path, "captioner", "processing_outside.py").is_file()
    config = json.loads(Path(tmp_path, "captioner", "config.json").read_text())
    assert config["auto_map"]["AutoProcessor"] == "processing_outside.OutsideProcessor"


@each_row(
    ("fields", "message"),
    [
        ({"remote_classes": {}}, "Wrong .*remote_classes"),
        ({"model_type": ""}, "Wrong .*model_type"),
        ({"model_type": "bert"}, "'bert'"),
        ({"model_type": "ngsan"}, "'ngsan'"),
    ],
)
def test_what_cannot_be_registered(fields, message):
    before = dict(registry.MODEL_TYPES)
    with pytest.raises(ValueError, match=message):
        register_model_type(type("Wrong", (OutsideLanguageModelConfig,), fields))
    assert before == registry.MODEL_TYPES
