"""Checkpoints with code of each kind, loaded, run and tested in a process without this package."""

import json

import pytest
import torch

from hf_ngsan import RSTNetProcessor, save_for_hub
from tests.loading.test_hub import result_of
from tests.models.mcan import tiny as mcan
from tests.models.mhsan import tiny as mhsan
from tests.models.nsa_transformer.tiny import tiny_translator
from tests.models.rstnet import tiny as rstnet
from tests.models.tiny import tiny_tokenizer
from tests.models.tiny_photos import PHOTOS

LOADED = """
import json, sys
sys.modules["hf_ngsan"] = None  # import hf_ngsan now raises ImportError
import torch, transformers
from transformers import pipeline

def load(auto, folder={folder!r}):
    return getattr(transformers, auto).from_pretrained(folder, trust_remote_code=True)

def tensors(answer):
    print(json.dumps([answer, sorted({{type(part).__module__.split(".")[0] for part in parts}})]))

inputs = torch.load({inputs!r})
with torch.no_grad():
    {code}
"""


def answer_of(folder, inputs: dict, code: str) -> list:
    """Runs code, which assigns `parts` and `answer`, in a process without the package, and returns them."""
    torch.save(inputs, folder.parent / "inputs.pt")
    code = "\n    ".join([*code.strip().splitlines(), "tensors(answer)"])
    text = LOADED.format(folder=str(folder), inputs=str(folder.parent / "inputs.pt"), code=code)
    answer, homes = result_of(text, folder.parent)
    assert homes == ["transformers_modules"]
    return answer


@pytest.mark.slow
def test_rstnet_and_its_language_model(tmp_path):
    model, grids = rstnet.tiny_captioner(), rstnet.random_grids(2)
    save_for_hub(model, RSTNetProcessor(tokenizer=tiny_tokenizer()), tmp_path / "model")
    search = {"num_beams": 3, "return_visualness": True, "return_dict_in_generate": True}
    code = f"""
model, processor = load("AutoModelForImageTextToText"), load("AutoProcessor")
parts = [model, processor, model.model.decoder.language_model]
output = model.generate(**processor(**inputs), **{search!r})
answer = [output.sequences.tolist(), output.visualness.tolist()]
"""
    sequences, visualness = answer_of(tmp_path / "model", {"visual_features": list(grids["visual_features"])}, code)
    expected = model.generate(**grids, **search)
    assert sequences == expected.sequences.tolist()
    torch.testing.assert_close(torch.tensor(visualness), expected.visualness)

    language_model, words = rstnet.tiny_language_model(), torch.tensor([[1, 5, 6]])
    save_for_hub(language_model, RSTNetProcessor(tokenizer=tiny_tokenizer()), tmp_path / "words")
    code = 'parts = [load("AutoModel")]\nanswer = parts[0](**inputs).logits.tolist()'
    logits = answer_of(tmp_path / "words", {"input_ids": words}, code)
    torch.testing.assert_close(torch.tensor(logits), language_model(words).logits)


@pytest.mark.slow
def test_mcan_and_its_pipeline(tmp_path):
    model, inputs = mcan.tiny_model(geometric_bias=["query"], geometry_features="signed"), mcan.random_inputs([3], [4])
    save_for_hub(model, mcan.tiny_processor(), tmp_path / "model")
    code = """
parts = [load("AutoModel"), load("AutoModelForVisualQuestionAnswering")]
pipe = pipeline("visual-question-answering", model=load.__defaults__[0], trust_remote_code=True)
row = {name: inputs[name][0].tolist() for name in ("visual_features", "visual_boxes")}
answer = [parts[1](**inputs).logits.tolist(), pipe({**row, "question": "Is there a ball?"}, top_k=2)]
"""
    logits, answers = answer_of(tmp_path / "model", inputs, code)
    torch.testing.assert_close(torch.tensor(logits), model(**inputs).logits)
    assert len(answers) == 2 and {answer["answer"] for answer in answers} <= set(mcan.ANSWERS)


@pytest.mark.slow
def test_a_translator_and_its_pipeline(tmp_path):
    model, tokenizer = tiny_translator(), tiny_tokenizer()
    save_for_hub(model, tokenizer, tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    assert set(config["auto_map"]) == {"AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM"}
    code = """
parts = [load("AutoModel"), load("AutoModelForSeq2SeqLM")]
pipe = pipeline("translation", model=load.__defaults__[0], trust_remote_code=True)
answer = [parts[1].generate(**inputs, num_beams=4).tolist(), pipe(["a red ball", "two"], batch_size=2, num_beams=4)]
"""
    inputs = dict(tokenizer(["a red ball"], return_tensors="pt"))
    ids, (first, _) = answer_of(tmp_path / "model", inputs, code)
    assert ids == model.generate(**inputs, num_beams=4).tolist()
    assert first == [{"translation_text": tokenizer.decode(ids[0], skip_special_tokens=True).strip()}]


@pytest.mark.slow
def test_a_dual_encoder_and_its_pipeline(tmp_path):
    model, processor = mhsan.tiny_model(vision_config=mhsan.VISION), mhsan.tiny_processor(pixels=True)
    save_for_hub(model, processor, tmp_path / "model")
    PHOTOS[0].save(tmp_path / "photo.png")
    labels = ["red ball", "blue box", "a large green ring"]
    code = """
parts = [load("AutoModelForZeroShotImageClassification"), load("AutoModel"), load("AutoProcessor")]
pipe = pipeline("zero-shot-image-classification", model=load.__defaults__[0], trust_remote_code=True)
found = pipe(inputs["photo"], candidate_labels=inputs["labels"], hypothesis_template="{}")
answer = {entry["label"]: entry["score"] for entry in found}
"""
    actual = answer_of(tmp_path / "model", {"photo": str(tmp_path / "photo.png"), "labels": labels}, code)
    logits = model(**processor(images=PHOTOS[0], text=labels)).logits_per_image[0]
    assert [actual[label] for label in labels] == pytest.approx(logits.softmax(-1).tolist(), abs=1e-5)
