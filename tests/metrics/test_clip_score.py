"""CLIPScore: its formula, for each image, and its errors."""

import json
import shutil

import pytest
import torch

from hf_ngsan.cli import main
from hf_ngsan.guests import dual_encoder_of
from hf_ngsan.loading.models import load_model
from hf_ngsan.metrics import ClipScore
from tests.commands.running import fails, prints
from tests.guests.tiny import photos
from tests.tables import each_row

CAPTIONS = ["a red ball", "two dogs left of the cat"]
REFERENCES = [["the ball", "a ball on it"], ["two cat"]]
LONG = " ".join(["red"] * 40)


@pytest.fixture(scope="module")
def folder(guest):
    return guest("clip")


@pytest.fixture(scope="module")
def encoder(folder):
    return dual_encoder_of(*load_model(folder, "retrieval"))


def cosine(model, first: torch.Tensor, second: torch.Tensor) -> float:
    return float(torch.cosine_similarity(first.double(), second.double()))


@each_row(("prompt", "weight"), [("A photo depicts", 2.5), ("", 100.0), ("", 0.001)])
def test_values_are_those_of_the_formula(encoder, prompt, weight):
    """With weight 100 and no prompt, the value of a pair equals torchmetrics' CLIPScore."""
    model, processor = encoder.model, encoder.processor

    def embed(text: str) -> torch.Tensor:
        ids = processor.tokenizer(f"{prompt} {text}".strip(), return_tensors="pt")
        return model.get_text_features(**{name: ids[name] for name in ("input_ids", "attention_mask")}).pooler_output

    scores, ref_scores = [], []
    with torch.no_grad():
        for image, caption, references in zip(photos(2), CAPTIONS, REFERENCES, strict=True):
            pixels = processor.image_processor(images=image, return_tensors="pt")["pixel_values"]
            seen = model.get_image_features(pixel_values=pixels).pooler_output
            score = weight * max(cosine(model, embed(caption), seen), 0)
            nearest = max(0, *(cosine(model, embed(caption), embed(reference)) for reference in references))
            scores.append(score)
            ref_scores.append(2 * score * nearest / (score + nearest) if score + nearest else 0.0)
    metric = ClipScore(encoder, prompt=prompt, weight=weight, batch_size=1)
    actual = metric.compute(predictions=CAPTIONS, images=photos(2), references=REFERENCES, per_image=True)
    assert actual["per_image"]["clip_score"] == pytest.approx(scores, abs=1e-5)
    assert actual["per_image"]["ref_clip_score"] == pytest.approx(ref_scores, abs=1e-5)
    assert actual["clip_score"] == pytest.approx(sum(scores) / 2, abs=1e-5)


def test_long_captions_are_refused_or_cut(encoder):
    with pytest.raises(ValueError, match=str(encoder.longest_text)):
        ClipScore(encoder).compute(predictions=[LONG], images=photos(1))
    cut = ClipScore(encoder, truncate=True).compute(predictions=[LONG], images=photos(1))
    shorter = " ".join(LONG.split()[: encoder.longest_text])
    assert cut == ClipScore(encoder, truncate=True).compute(predictions=[shorter], images=photos(1))


@each_row(
    ("inputs", "named"),
    [
        ({"predictions": CAPTIONS, "images": photos(1)}, "2"),
        ({"predictions": [], "images": []}, "0"),
        ({"predictions": CAPTIONS[:1], "images": photos(1), "references": [[]]}, "references"),
    ],
)
def test_what_does_not_fit_is_refused(encoder, inputs, named):
    with pytest.raises(ValueError, match=named):
        ClipScore(encoder).compute(**inputs)


@pytest.fixture
def files(tmp_path):
    """A COCO file of captions of two images, results for them, and the images."""
    for number, photo in enumerate(photos(2)):
        photo.save(tmp_path / f"{number}.png")
    images = [{"id": number, "file_name": f"{number}.png"} for number in range(2)]
    texts = [(image, text) for image, texts in enumerate(REFERENCES) for text in texts]
    annotations = [{"id": place, "image_id": image, "caption": text} for place, (image, text) in enumerate(texts)]
    (tmp_path / "captions.json").write_text(json.dumps({"images": images, "annotations": annotations}))
    results = [{"image_id": number, "caption": caption} for number, caption in enumerate(CAPTIONS)]
    (tmp_path / "results.json").write_text(json.dumps(results))
    return tmp_path


def test_files_are_scored(encoder, folder, files, capsys):
    options = ["--predictions", files / "results.json", "--references", files / "captions.json", "--metrics", "rouge_l"]
    clip = ["--clip-score", folder, "--image-folder", files]
    printed = prints(capsys, "score", *options, *clip, "--per-image", files / "scores.json")
    expected = ClipScore(encoder).compute(predictions=CAPTIONS, images=photos(2), references=REFERENCES, per_image=True)
    values = dict(line.split() for line in printed.splitlines()[:-1])
    assert float(values["clip_score"]) == pytest.approx(expected["clip_score"], abs=1e-4)
    assert float(values["ref_clip_score"]) == pytest.approx(expected["ref_clip_score"], abs=1e-4)
    written = json.loads((files / "scores.json").read_text())
    assert [item["clip_score"] for item in written] == pytest.approx(expected["per_image"]["clip_score"], abs=1e-5)
    assert "--image-folder" in fails(capsys, "score", *options, "--clip-score", folder)
    assert "--truncate-captions" in fails(capsys, "score", *options, "--truncate-captions")


def test_a_captioner_is_evaluated(folder, guest, tmp_path, capsys):
    blip = shutil.copytree(guest("blip"), tmp_path / "blip")
    options = ["--data", "scenes:size=4,test=2,images=true", "--split", "test", "--limit", "2", "--metrics", "rouge_l"]
    command = ["evaluate", "--model", str(blip), *options, "--clip-score", str(folder), "--truncate-captions"]
    assert main([*command, "--record"]) == 0
    printed = json.loads(capsys.readouterr().out)
    [recorded] = json.loads((blip / "evaluations.json").read_text())
    assert {"clip_score", "ref_clip_score"} <= printed.keys()
    for part in ("encoder:clip", "long:cut", "w:2.5"):
        assert part in recorded["fingerprints"]["clip_score"]
    without_images = ["--data", "scenes:size=4,test=2", "--limit", "2", "--clip-score", folder]
    assert "images" in fails(capsys, "evaluate", "--model", blip, *without_images)
