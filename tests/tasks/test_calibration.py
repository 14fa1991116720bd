"""Confidence in captions: the regression and its scores against slow references, and use of calibrated captioners."""

import base64
import dataclasses
import json
import math
import shutil

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict, Features, Sequence, Value, concatenate_datasets
from datasets import Image as ImageFeature
from hypothesis import given
from hypothesis import strategies as st
from transformers import pipeline

from hf_ngsan.cli import main
from hf_ngsan.loading.calibration import CONFIDENCE, read_calibration, read_search_calibration
from hf_ngsan.loading.confidence import Confidence
from hf_ngsan.loading.models import load_model, save_model
from hf_ngsan.metrics import CiderD
from hf_ngsan.tasks.captioning_analysis import area_under_curve, fit_logistic
from hf_ngsan.tasks.retrieval_search import embed_images, embed_texts
from tests.commands.running import fails, prints
from tests.models.mhsan import tiny as mhsan
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import photo, pixel_captioner, pixel_processor
from tests.tables import each_row

NUM_PHOTOS = 60
VALUES = st.lists(st.tuples(st.sampled_from([0.1, 0.2, 0.5, 0.9]), st.booleans()), min_size=2, max_size=30)


def test_the_regression_is_at_its_minimum():
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(400, 2)) * [0.2, 3.0] + [-0.5, 1.0]
    is_good = generator.random(400) < 1 / (1 + np.exp(-(1 + 4 * inputs[:, 0] - 0.5 * inputs[:, 1])))
    actual = torch.tensor(fit_logistic(inputs, is_good), requires_grad=True)
    given_inputs, labels, scale = torch.tensor(inputs), torch.tensor(is_good).double(), torch.tensor(inputs.std(0))
    logits = actual[0] + given_inputs @ actual[1:]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
    loss = loss + 1e-3 / 2 * ((actual[1:] * scale) ** 2).sum()
    [gradient] = torch.autograd.grad(loss, actual)
    assert gradient.abs().max() < 1e-10
    assert actual[1] > 2 and actual[2] < -0.3


@given(VALUES)
def test_the_area_under_the_curve_counts_pairs(rows):
    values, is_good = np.array([value for value, _ in rows]), np.array([good for _, good in rows])
    pairs = [
        1.0 if good_value > bad_value else 0.5 if good_value == bad_value else 0.0
        for good_value, good in rows
        if good
        for bad_value, bad in rows
        if not bad
    ]
    if pairs:
        assert area_under_curve(values, is_good) == pytest.approx(sum(pairs) / len(pairs))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two captioners with different dual encoders, and photographs, half of them with captions of the first."""
    folder = tmp_path_factory.mktemp("confidence")
    captioner = pixel_captioner()
    captioner.generation_config.max_new_tokens = 5
    save_model(captioner, pixel_processor(), folder / "captioner")
    dual_encoder = mhsan.tiny_model(vision_config=mhsan.VISION)
    dual_encoder.vision.load_state_dict(captioner.model.vision.state_dict())
    save_model(dual_encoder, mhsan.tiny_processor(pixels=True), folder / "mhsan")
    save_model(captioner, pixel_processor(), folder / "apart")
    other = mhsan.tiny_model(seed=2, vision_config=mhsan.VISION)
    save_model(other, mhsan.tiny_processor(pixels=True), folder / "other")
    images = [photo((32, 24), seed) for seed in range(NUM_PHOTOS)]
    written = pipeline("image-to-text", model=str(folder / "captioner"))(images, num_beams=2, batch_size=20)
    captions = [[item["generated_text"] if number % 2 else "no such words"] for number, [item] in enumerate(written)]
    rows = {"image_id": list(range(NUM_PHOTOS)), "image": images, "captions": captions}
    features = Features({"image_id": Value("int64"), "image": ImageFeature(), "captions": Sequence(Value("string"))})
    data = Dataset.from_dict(rows, features=features)
    DatasetDict(train=data.select(range(20)), validation=data.select(range(40))).save_to_disk(folder / "data")
    more = data.select(range(40, NUM_PHOTOS)).add_column("of", ["another kind"] * 20)
    DatasetDict(train=more.select(range(10)), validation=more).save_to_disk(folder / "more")
    for name, dual_encoder in (("captioner", "mhsan"), ("apart", "other")):
        options = ["--dual-encoder", folder / dual_encoder, "--num-beams", 2]
        options += ["--data", f"images:{folder / 'data'}", "--data", f"images:{folder / 'more'}"]
        assert main(["calibrate", "--model", str(folder / name), *map(str, options)]) == 0
    return folder


def clusters_of(text, dimension):
    return np.frombuffer(base64.b64decode(text), np.float16).astype(np.float32).reshape(-1, dimension)


@each_row("name", ["captioner", "apart"])
def test_a_confidence_is_the_logistic_function_of_likelihood_and_similarity(made, tmp_path, name):
    calibration = read_calibration(made / name)
    captioner = pipeline("image-to-text", model=str(made / name))
    images = [photo((32, 24), seed) for seed in (3, 100)]
    answers = captioner(images, return_confidence=True, num_beams=2, num_return_sequences=2)
    judge = Confidence(made / name)
    for image, candidates in zip(images, answers, strict=True):
        [embedding] = embed_images(judge.encoder.model, judge.encoder.processor, [{"image": image}])
        density = sum(
            share * math.exp(10 * float(centre @ embedding))
            for centre, share in zip(clusters_of(calibration.clusters, len(embedding)), calibration.shares, strict=True)
        )
        for answer in candidates:
            [text] = embed_texts(judge.encoder.model, judge.encoder.processor, [answer["generated_text"]])
            logit = calibration.intercept + calibration.log_probability * answer["score"]
            logit += calibration.similarity * float(embedding @ text)
            assert answer["confidence"] == pytest.approx(1 / (1 + math.exp(-logit)), abs=1e-5)
            assert answer["unlike_training"] == (math.log(density) < calibration.min_familiarity)
    assert "confidence" not in captioner(images[0])[0]


def test_a_calibration_is_of_its_captions(made):
    actual = read_calibration(made / "captioner")
    captioner = pipeline("image-to-text", model=str(made / "captioner"))
    parts = [DatasetDict.load_from_disk(made / name)["validation"] for name in ("data", "more")]
    rows = concatenate_datasets([part.select_columns(["image", "captions"]) for part in parts])
    options = {"return_confidence": True, "num_beams": 2, "batch_size": 20}
    answers = [answer for [answer] in captioner(list(rows["image"]), **options)]
    captions = [answer["generated_text"] for answer in answers]
    cider_d = CiderD().compute(predictions=captions, references=list(rows["captions"]), per_image=True)["per_image"]
    assert actual.median_cider_d == pytest.approx(float(np.median(cider_d["cider_d"])))
    assert (actual.num_images, actual.num_beams, actual.split) == (NUM_PHOTOS, 2, "validation")
    assert sum(answer["unlike_training"] for answer in answers) == math.ceil(0.05 * NUM_PHOTOS)
    assert actual.data == [f"images:{made / name}" for name in ("data", "more")]
    assert 0 <= actual.auroc <= 1 and 0 <= actual.calibration_error <= 1
    assert (
        0 <= actual.doubt_below <= 0.5 and (actual.doubt_below > 0) == (actual.auroc > 0.5) and 0 <= actual.doubted <= 1
    )


def test_captions_with_scores_on_the_command_line(made, capsys, tmp_path):
    photo((32, 24), 3).save(tmp_path / "photo.png")
    command = ["caption", "--model", made / "captioner", tmp_path / "photo.png"]
    [line] = prints(capsys, *command, "--scores").splitlines()
    record = json.loads(prints(capsys, *command, "--scores", "--json"))
    name, caption, score, confidence, *unlike = line.split("\t")
    assert (name, caption) == (record["image"], record["caption"])
    assert float(score) == pytest.approx(record["score"], abs=1e-3)
    assert float(confidence) == pytest.approx(record["confidence"], abs=1e-2)
    assert bool(unlike) == record["unlike_training"]
    assert "confidence" not in json.loads(prints(capsys, *command, "--json"))


def test_a_doubtful_caption_says_so_unasked(made, capsys, tmp_path):
    photo((32, 24), 3).save(tmp_path / "photo.png")
    content = json.loads((made / "captioner" / CONFIDENCE).read_text())
    doubts = {(-9, -99, 0.3): True, (9, -99, 0.3): False, (9, 99, 0.3): False, (-0.4, 99, 0.3): True}
    doubts |= {(0, -99, 0.4): False, (0, -99, 0.6): True}
    for (intercept, least, below), doubtful in doubts.items():
        changed = {"intercept": intercept, "log_probability": 0, "similarity": 0, "min_familiarity": least}
        changed["doubt_below"] = below
        folder = tmp_path / f"{intercept} {least} {below}"
        shutil.copytree(made / "captioner", folder)
        (folder / CONFIDENCE).write_text(json.dumps(content | changed))
        assert main(["caption", "--model", str(folder), str(tmp_path / "photo.png")]) == 0
        printed = capsys.readouterr()
        assert printed.out.count("\t") == 1 and ("photo.png" in printed.err) == doubtful, (intercept, least, below)
    (folder / CONFIDENCE).unlink()
    assert main(["caption", "--model", str(folder), str(tmp_path / "photo.png")]) == 0
    assert not capsys.readouterr().err


def test_a_search_says_that_nothing_is_near_enough(made, capsys, tmp_path):
    model = tmp_path / "mhsan"
    shutil.copytree(made / "mhsan", model)
    data = [part for name in ("data", "more") for part in ("--data", f"images:{made / name}")]
    assert main(["calibrate", "--model", str(model), *data]) == 0
    actual = read_search_calibration(model)
    assert actual.num_images == NUM_PHOTOS and abs(actual.missed - actual.mistaken) < 0.1
    photo((32, 24), 3).save(tmp_path / "photo.png")
    index = str(tmp_path / "index")
    assert main(["index", "--images", str(tmp_path), "--model", str(model), "--output", index]) == 0
    for least, is_near in ((-1.0, True), (1.0, False)):
        content = dataclasses.asdict(actual) | {"min_similarity": least}
        (model / "search.json").write_text(json.dumps(content))
        capsys.readouterr()
        assert main(["search", index, mhsan.WORDS[0], "--json"]) == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out)["near_enough"] is is_near and bool(printed.err) is not is_near
    assert "near_enough" not in json.loads(prints(capsys, "search", index, "--image", tmp_path / "photo.png", "--json"))


def test_a_calibration_of_another_model(made, capsys, tmp_path):
    folder = tmp_path / "captioner"
    save_model(pixel_captioner(), pixel_processor(), folder)
    recorded = dataclasses.asdict(read_calibration(made / "captioner"))
    for change, fact in (
        ({"fingerprint": "another"}, "another version"),
        ({"captioner": {}}, "other weights"),
        ({"dual_encoder": "no/such-folder"}, "no/such-folder"),
    ):
        (folder / CONFIDENCE).write_text(json.dumps({**recorded, **change}))
        with pytest.raises((ValueError, FileNotFoundError), match=fact):
            Confidence(folder).encoder  # noqa: B018
        photo((32, 24), 3).save(tmp_path / "photo.png")
        assert main(["caption", "--model", str(folder), str(tmp_path / "photo.png")]) == 0
        printed = capsys.readouterr()
        assert printed.out.count("\t") == 1 and fact in printed.err


def test_what_cannot_be_calibrated(made, capsys, tmp_path):
    other, processor = load_model(made / "other", "retrieval")
    processor.image_processor.image_mean = [0.1, 0.2, 0.3]
    save_model(other, processor, tmp_path / "mhsan")
    data = ["--data", f"images:{made / 'data'}", "--data", f"images:{made / 'more'}"]
    calibrated = ["calibrate", "--model", made / "captioner", *data]
    assert "preprocessing" in fails(capsys, *calibrated, "--dual-encoder", tmp_path / "mhsan")
    few = [*calibrated, "--dual-encoder", made / "mhsan", "--limit", 20]
    assert "40 photographs are too few" in fails(capsys, *few)
    save_model(tiny_captioner(visual_feature_size=10), tiny_processor(), tmp_path / "blind")
    blind = ["calibrate", "--model", tmp_path / "blind", "--data", "scenes", "--dual-encoder", made / "mhsan"]
    assert "vision" in fails(capsys, *blind)
    assert "Hub" in fails(capsys, "calibrate", "--model", "user/captioner", *data)
