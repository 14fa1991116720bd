"""Captioner and language model saved with their code, read in a process without this package."""

import json

import pytest
import torch

from hf_ngsan import RSTNetProcessor, save_for_hub
from tests.loading.test_hub import result_of
from tests.models.rstnet.tiny import random_grids, tiny_captioner, tiny_language_model
from tests.models.tiny import tiny_tokenizer

WITHOUT_THE_PACKAGE = """
import json, sys
sys.modules["hf_ngsan"] = None  # import hf_ngsan now raises ImportError
import torch
from transformers import AutoModel, AutoModelForImageTextToText, AutoProcessor

model = AutoModelForImageTextToText.from_pretrained({captioner!r}, trust_remote_code=True)
language_model = AutoModel.from_pretrained({language_model!r}, trust_remote_code=True)
processors = [AutoProcessor.from_pretrained(one, trust_remote_code=True) for one in ({captioner!r}, {language_model!r})]
batch = processors[0](visual_features=list(torch.load({grids!r}, weights_only=True)))
output = model.generate(**batch, num_beams=3, return_visualness=True, return_dict_in_generate=True)
parts = [model, language_model, model.model.decoder.language_model, *processors]
print(json.dumps({{
    "modules": sorted({{type(part).__module__.split(".")[0] for part in parts}}),
    "sequences": output.sequences.tolist(),
    "visualness": output.visualness.tolist(),
    "logits": language_model(torch.tensor([[1, 5, 6]])).logits[0, -1].tolist(),
}}))
"""


@pytest.mark.slow
def test_a_process_without_the_package_runs_both(tmp_path):
    captioner, language_model, grids = tiny_captioner(), tiny_language_model(), random_grids(2)
    processor = RSTNetProcessor(tokenizer=tiny_tokenizer())
    folders = {name: str(tmp_path / name) for name in ("captioner", "language_model")}
    save_for_hub(captioner, processor, folders["captioner"])
    save_for_hub(language_model, processor, folders["language_model"])
    torch.save(grids["visual_features"], tmp_path / "grids.pt")
    found = result_of(WITHOUT_THE_PACKAGE.format(**folders, grids=str(tmp_path / "grids.pt")), tmp_path)
    expected = captioner.generate(**grids, num_beams=3, return_visualness=True, return_dict_in_generate=True)
    assert found["modules"] == ["transformers_modules"]
    assert found["sequences"] == expected.sequences.tolist()
    assert torch.tensor(found["visualness"]).allclose(expected.visualness, atol=1e-5)
    with torch.no_grad():
        logits = language_model(torch.tensor([[1, 5, 6]])).logits[0, -1]
    assert torch.tensor(found["logits"]).allclose(logits, atol=1e-5)
    config = json.loads((tmp_path / "captioner" / "config.json").read_text())
    assert config["auto_map"]["AutoModelForImageTextToText"] == "modeling_rstnet.RSTNetForConditionalGeneration"
