"""Small valid inputs of every kind, which the cases copy and change."""

import base64
import json
import os
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import yaml
from PIL import Image

from hf_ngsan.cli import main
from hf_ngsan.loading.confidence import Calibration
from hf_ngsan.loading.models import load_model, save_model
from hf_ngsan.loading.provenance import model_fingerprint
from hf_ngsan.metrics.document_frequency import DocumentFrequency
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration
from hf_ngsan.models.processing_rstnet import RSTNetProcessor
from tests.data.formats.test_fuzz import FORMATS
from tests.data.test_nlvr import example
from tests.data.test_nlvr import write as write_statements
from tests.data.test_vqa import write_questions
from tests.guests.tiny import save_all
from tests.models.mcan.tiny import tiny_model as tiny_answerer
from tests.models.mcan.tiny import tiny_processor as tiny_question_processor
from tests.models.mhsan import tiny as mhsan
from tests.models.rstnet import tiny as rstnet
from tests.models.tiny import make_talkative, tiny_config, tiny_processor, tiny_tokenizer
from tests.tasks.tiny import tiny_sections
from tests.tasks.tiny_translation import tiny_sections as translation_sections

SCENES = "scenes:size=4,validation=2,test=2"
BACKBONE = {"model_type": "ngsan_vgg", "hidden_sizes": [4, 6], "depths": [1, 1]}
CAPTIONS = ("a red ball left of a ring", "a blue box near two small rings")


def make_inputs(folder: Path) -> SimpleNamespace:
    """Makes valid inputs in a folder.

    Returns:
        Their paths as attributes: the folder of a finished `run` and its training config, a captioner of `photos`, an
        `rstnet` for synthetic scenes, a `dual_encoder` of photos, its `index` and a `calibration` with it, `guests` of
        transformers by name and the `guest_index` of one, a `backbone`, a folder of `images`, one of `features`, a
        `layout` of COCO files, COCO `results`, `references` and an `image_list`, datasets of images with `lines` and
        with a `table`, parallel `text` and a `translator` of it, `videos` of VATEX, document frequencies, `formats`
        with a folder for each format of features, questions of `vqa` about the images, statements of `nlvr`, an
        `answerer` and a `judge` of these, and `places` where no file is.
    """
    made = SimpleNamespace(places=places_without_files(folder))
    made.config = folder / "config.yaml"
    made.sections = tiny_sections(folder / "run", data={"spec": SCENES}, training={"epochs": 1})
    made.sections["evaluation"] |= {"num_beams": 1, "max_new_tokens": 5}
    made.config.write_text(yaml.safe_dump(made.sections))
    made.run = folder / "run"
    assert main(["train", "--config", str(made.config)]) == 0
    vision = {"kind": "grid", "backbone_config": BACKBONE}
    model = NGSANForConditionalGeneration(tiny_config(vision_config=vision, visual_feature_size=6)).eval()
    make_talkative(model, 3)
    model.generation_config.max_new_tokens = 5
    made.photos, processor = folder / "photos", tiny_processor()
    processor.image_processor = CaptioningImageProcessor(size={"height": 16, "width": 16})
    model.save_pretrained(made.photos)
    processor.save_pretrained(made.photos)
    made.rstnet = folder / "rstnet"
    rstnet.tiny_captioner(visual_feature_size=10).save_pretrained(made.rstnet)
    RSTNetProcessor(tokenizer=tiny_tokenizer()).save_pretrained(made.rstnet)
    made.backbone = folder / "backbone"
    model.base_model.vision.backbone.save_pretrained(made.backbone)
    processor.image_processor.save_pretrained(made.backbone)
    made.images = folder / "images"
    make_images(made.images)
    made.features = folder / "features"
    make_coco(folder, made)
    extract = ["extract", "--images", str(made.image_list), "--image-folder", str(made.images), "--split", "test"]
    assert main([*extract, "--backbone", str(made.backbone), "--output", str(made.features), "--num-workers", "0"]) == 0
    made.lines, made.table = folder / "lines", folder / "table"
    make_images(made.lines)
    rows = [{"file_name": f"{n}.png", "captions": list(CAPTIONS)} for n in range(3)]
    (made.lines / "metadata.jsonl").write_text("\n".join(map(json.dumps, rows)))
    make_images(made.table)
    text = "file_name,captions\n" + "".join(f"{n}.png,{CAPTIONS[0]}\n" for n in range(3))
    (made.table / "metadata.csv").write_text(text)
    made.dual_encoder, made.index = folder / "dual_encoder", folder / "index"
    save_model(mhsan.tiny_model(vision_config=mhsan.VISION), mhsan.tiny_processor(pixels=True), made.dual_encoder)
    made.calibration = calibration_with(made.dual_encoder)
    index = ["index", "--model", str(made.dual_encoder), "--images", str(made.images), "--output", str(made.index)]
    to = ["--to", "usearch"] if find_spec("usearch") else []
    assert main([*index, "--num-workers", "0", "--images-per-shard", "2", *to]) == 0
    made.guests = folder / "guests"
    save_all(made.guests, "blip", "git", "florence2", "clip", "siglip")
    made.guest_index = folder / "guest_index"
    index[2], index[-1] = str(made.guests / "clip"), str(made.guest_index)
    assert main([*index, "--num-workers", "0", "--images-per-shard", "2"]) == 0
    make_translator(folder, made)
    make_videos(folder / "videos")
    made.videos = folder / "videos"
    made.frequency = folder / "frequency.npz"
    made.formats = folder / "formats"
    for name, write in FORMATS.items():
        (made.formats / name).mkdir(parents=True)
        write(made.formats / name)
    DocumentFrequency.from_captions([list(CAPTIONS), list(CAPTIONS)]).save(made.frequency)
    make_questions(folder, made)
    return made


def make_translator(folder: Path, made: SimpleNamespace) -> None:
    sections = translation_sections(folder / "translation", epochs=1)
    config = folder / "translation.yaml"
    config.write_text(yaml.safe_dump(sections))
    assert main(["train", "--config", str(config)]) == 0
    made.text, made.translator = folder / "translation" / "text", folder / "translation" / "run"


def make_videos(folder: Path) -> None:
    folder.mkdir()
    videos = [f"video_{number}" for number in range(3)]
    for video in videos:
        np.save(folder / f"{video}.npy", np.ones((1, 3, 4), np.float32))
    captions = [{"videoID": video, "enCap": list(CAPTIONS), "chCap": ["一个人。"]} for video in videos]
    (folder / "vatex_validation_v1.0.json").write_text(json.dumps(captions))


def places_without_files(folder: Path) -> list[str]:
    """Returns paths of what no command can read as a file."""
    (folder / "empty").mkdir()
    os.symlink(folder / "loop", folder / "loop")
    os.symlink(folder / "gone", folder / "dangling")
    unreadable = folder / "unreadable"
    unreadable.write_text("{}")
    unreadable.chmod(0)
    names = ("empty", "loop", "dangling", "absent", "unreadable", "empty/../absent/x")
    return [*(str(folder / name) for name in names), "/", "/dev/null", "/dev/zero", "/proc/self/mem", "x" * 300]


def make_images(folder: Path) -> None:
    folder.mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 255, (16, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def make_questions(folder: Path, made: SimpleNamespace) -> None:
    made.vqa, made.nlvr = write_questions(folder / "vqa", [0, 10, 20]), write_statements(folder / "nlvr", [example()])
    made.answerer, made.judge = folder / "answerer", folder / "judge"
    seeing = tiny_answerer(vision_config={"kind": "grid", "backbone_config": BACKBONE}, visual_feature_size=None)
    save_model(seeing, tiny_question_processor(pixels=True), made.answerer)
    save_model(tiny_answerer(visual_feature_size=10), tiny_question_processor(), made.judge)


def make_coco(folder: Path, made: SimpleNamespace) -> None:
    made.layout = folder / "layout"
    made.layout.mkdir()
    images = [{"id": n, "file_name": f"{n}.png", "width": 20, "height": 16} for n in range(3)]
    boxes = [
        {"id": 2 * n + k, "image_id": n, "category_id": 1 + k, "bbox": [k, 2, 5, 6.5], "area": 32.5, "iscrowd": 0}
        for n in range(3)
        for k in range(2)
    ]
    captions = [{"id": 2 * n + k, "image_id": n, "caption": text} for n in range(3) for k, text in enumerate(CAPTIONS)]
    categories = [{"id": 1, "name": "ball"}, {"id": 2, "name": "box"}]
    instances = {"images": images, "annotations": boxes, "categories": categories}
    (made.layout / "instances_test.json").write_text(json.dumps(instances))
    for place in (made.layout / "captions_test.json", folder / "references.json"):
        place.write_text(json.dumps({"images": images, "annotations": captions}))
    made.references = made.image_list = folder / "references.json"
    made.results = folder / "results.json"
    made.results.write_text(json.dumps([{"image_id": n, "caption": CAPTIONS[n % 2]} for n in range(3)]))


def calibration_with(dual_encoder: Path) -> dict:
    """Returns a calibration of made-up numbers, as JSON, with two clusters."""
    numbers = {field.name: 0.5 for field in fields(Calibration) if field.type in (float, "float")}
    model, processor = load_model(dual_encoder, "retrieval")
    clusters = np.eye(2, model.config.projection_dim, dtype=np.float16)
    return {
        **numbers,
        "dual_encoder": str(dual_encoder),
        "fingerprint": model_fingerprint(model, processor),
        "data": "images:photos",
        "split": "validation",
        "num_images": 60,
        "num_beams": 2,
        "clusters": base64.b64encode(clusters.tobytes()).decode(),
        "shares": [0.5, 0.5],
    }
