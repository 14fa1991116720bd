"""The metrics against the values that the public evaluation code gives, image by image."""

import json
import os
from pathlib import Path

import pytest

from hf_ngsan.metrics import CaptionMetrics, CiderD, DocumentFrequency, PTBTokenizer

DATA = Path(os.environ.get("HF_NGSAN_TEST_DATA", "absent")) / "data"
REFERENCE, CAPTIONS = DATA / "metric_reference", DATA / "coco_val2017"
pytestmark = pytest.mark.skipif(
    not REFERENCE.is_dir(), reason="HF_NGSAN_TEST_DATA names no folder with data/metric_reference"
)
NAMES = {f"Bleu_{n}": f"bleu_{n}" for n in (1, 2, 3, 4)} | {"ROUGE_L": "rouge_l", "CIDEr": "cider_d"}


def captions_of(path: Path) -> dict[int, list[str]]:
    captions = {}
    for annotation in sorted(json.loads(path.read_text())["annotations"], key=lambda entry: entry["id"]):
        captions.setdefault(annotation["image_id"], []).append(annotation["caption"])
    return dict(sorted(captions.items()))


def compared(name: str):
    """Predictions, references and the official scores of one set, in the order of images."""
    file = REFERENCE / "captions_val_human_refs.json" if name == "human" else CAPTIONS / "captions_val.json"
    references = captions_of(file)
    rows = json.loads((REFERENCE / f"predictions_val_{name}.json").read_text())
    predictions = {row["image_id"]: row["caption"] for row in rows}
    scores = json.loads((REFERENCE / f"scores_val_{name}.json").read_text())
    return list(references), [predictions[image] for image in references], list(references.values()), scores


@pytest.fixture(scope="module")
def train_frequency():
    return DocumentFrequency.from_captions(list(captions_of(CAPTIONS / "captions_train.json").values()))


@pytest.mark.parametrize("name", ["human", "shuffled", "noisy"])
def test_every_value_is_the_official_one(name):
    images, predictions, references, scores = compared(name)
    result = CaptionMetrics().compute(predictions=predictions, references=references, per_image=True)
    for official, own in NAMES.items():
        assert result[own] == pytest.approx(scores["corpus"][official], abs=1e-9, rel=0)
        values = [scores["per_image"][str(image)][official] for image in images]
        assert result["per_image"][own] == pytest.approx(values, abs=1e-9, rel=0)


@pytest.mark.parametrize("name", ["human", "shuffled", "noisy"])
def test_cider_d_with_the_frequencies_of_the_training_captions(name, train_frequency):
    images, predictions, references, scores = compared(name)
    result = CiderD(document_frequency=train_frequency).compute(
        predictions=predictions, references=references, per_image=True
    )
    values = [scores["per_image"][str(image)]["CIDErD_train_df"] for image in images]
    assert result["cider_d"] == pytest.approx(scores["corpus"]["CIDErD_train_df"], abs=1e-9, rel=0)
    assert result["per_image"]["cider_d"] == pytest.approx(values, abs=1e-9, rel=0)


@pytest.mark.parametrize("split", ["train", "val"])
def test_real_captions_are_tokenized_like_the_official_evaluation(split):
    annotations = json.loads((CAPTIONS / f"captions_{split}.json").read_text())["annotations"]
    official = json.loads((REFERENCE / f"tokenized_captions_{split}.json").read_text())
    own = PTBTokenizer().tokenize([annotation["caption"] for annotation in annotations])
    different = [
        annotation["caption"]
        for annotation, tokens in zip(annotations, own, strict=True)
        if tokens != official[str(annotation["id"])]
    ]
    # An abbreviation at the very end keeps or loses its dot by the line after it.
    assert len(different) <= 2
    assert all(caption.rstrip().endswith(("Ave S.", " K.")) for caption in different)


def test_nasty_strings_are_tokenized_like_the_official_evaluation():
    cases = json.loads((REFERENCE / "tokenizer_cases.json").read_text())
    own = PTBTokenizer().tokenize([case["text"] for case in cases])
    wrong = [case["text"] for case, tokens in zip(cases, own, strict=True) if tokens != case["tokens"]]
    assert len(wrong) <= 0.01 * len(cases), wrong
