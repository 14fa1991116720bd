"""Everything that the commands of README and docs read, tiny: photographs, features, models, questions, videos."""

import json
import shutil
from pathlib import Path
from unittest import mock

import numpy as np
from matplotlib.cbook import get_sample_data
from PIL import Image
from transformers import (
    BertConfig,
    BertModel,
    ResNetConfig,
    ResNetForImageClassification,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrImageProcessor,
)

from hf_ngsan.data.moving_scenes import draw_clip, make_clip
from hf_ngsan.data.scenes import load_scenes
from hf_ngsan.loading.models import save_model
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from tests.data.formats.files import REGIONS, SIZES, tsv_line, write_tsv, write_vqa
from tests.data.rows import dataset_of, make_row
from tests.data.test_nlvr import example
from tests.data.test_nlvr import write as write_statements
from tests.data.test_vatex import write as write_videos
from tests.data.test_vqa import NAMES, write_questions
from tests.extraction.test_vision import DETECTOR
from tests.extraction.tiny import write_coco_file, write_photos
from tests.guests import tiny as guests
from tests.models.mcan import tiny as mcan
from tests.models.mhsan import tiny as mhsan
from tests.models.test_videos import write_clip
from tests.models.tiny_photos import pixel_captioner, pixel_processor
from tests.tasks.tiny_translation import write_pairs
from tests.test_photographs import encoded, write_data

CAPTIONS = [f"a {color} {thing} near the box" for color in ("red", "blue", "green") for thing in ("ball", "dog")]
GUESTS = ("BLIP", "GIT", "FLORENCE2", "CLIP", "SIGLIP")


def write_inputs(folder: Path) -> None:
    """Writes the inputs of the commands: all datasets and models, with a few examples each."""
    with Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False)) as photograph:
        for name in ("photo", "another", "new_photo"):
            photograph.convert("RGB").resize((160, 160)).save(folder / f"{name}.jpg")
    lines = ["file_name,captions,split"]
    for split in ("train", "validation"):
        photos = write_photos(folder / "photos" / split, 6)
        names = sorted(file.name for file in photos.iterdir())
        lines += [f"{split}/{name},{caption},{split}" for name, caption in zip(names, CAPTIONS, strict=True)]
        with Image.open(photos / "000002.png") as small:
            small.resize((520, 360)).save(photos / "000002.png")
    (folder / "photos" / "metadata.csv").write_text("\n".join(lines) + "\n")
    for name in ("flickr8k", "everyday", "general_photos", "SOURCE"):
        write_splits(folder / name, 50 if name == "flickr8k" else 20)
    shutil.copy(folder / "SOURCE" / "validation.parquet", folder / "SOURCE" / "test.parquet")
    write_coco(folder)
    write_features(folder)
    write_layouts(folder / "DIR")
    for name, numbers in (("dev", range(12)), ("test", range(20, 26))):
        write_statements(folder / "DIR", [example(f"{number}-0", str(number % 6)) for number in numbers], name)
        for number in numbers:
            pictures = folder / "DIR" / name / "images" / str(number % 6)
            pictures.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (400, 100), "white").save(pictures / f"{name}-{number}-0-0.png")
    (folder / "VATEX").mkdir()
    for split in ("training", "validation"):
        write_videos(folder / "VATEX", name=f"vatex_{split}_v1.0.json")
    shutil.copytree(folder / "DIR", folder / "NLVR")
    write_pairs(folder / "multi30k")
    shutil.copy(folder / "multi30k" / "test.en", folder / "test.en")
    for language in ("en", "de"):
        shutil.copy(folder / "multi30k" / f"test.{language}", folder / "multi30k" / f"test_2016_flickr.{language}")
    write_clips(folder)
    write_models(folder)


def write_splits(folder: Path, number: int) -> None:
    """Writes photographs in Parquet files: 6 for training, and a number for validation."""
    captions = (("a red circle", "a circle"), ("the blue square", "some box"))
    write_data(folder, {key: encoded(key) for key in range(6, 12)}, captions)
    write_data(folder / "others", {key: encoded(key) for key in range(20, 20 + number)}, captions)
    (folder / "others" / "validation.parquet").replace(folder / "validation.parquet")
    shutil.rmtree(folder / "others")


def write_coco(folder: Path) -> None:
    """Writes photographs with files of captions, boxes and splits in COCO's layout."""
    names = {number: f"{number:06d}.png" for number in range(1, 5)}
    for split in ("train2017", "train2014", "val2014"):
        write_photos(folder / "coco" / split, 4)
        write_coco_file(folder / "coco" / f"captions_{split}.json", names, dict.fromkeys(names, CAPTIONS[:2]))
    write_coco_file(folder / "captions_val.json", names, dict.fromkeys(names, CAPTIONS[:2]))
    (folder / "results.json").write_text(json.dumps([{"image_id": key, "caption": CAPTIONS[0]} for key in names]))
    listed = [{"id": number, "file_name": f"{number:06d}.png"} for number in range(1, 7)]
    boxes = [{"image_id": image["id"], "category_id": 1, "bbox": [3, 2, 18, 12], "score": 0.5} for image in listed]
    listed.append({"id": 9, "file_name": "photo.jpg"})
    boxes.append({"image_id": 9, "category_id": 1, "bbox": [30, 20, 90, 80], "score": 0.5})
    content = {"images": listed, "annotations": boxes, "categories": [{"id": 1, "name": "dog"}]}
    (folder / "boxes.json").write_text(json.dumps(content))
    (folder / "detections").mkdir()
    for split, numbers in (("train", range(6, 12)), ("validation", range(20, 70))):
        boxes = [{"image_id": key, "category_id": 1, "bbox": [3, 2, 18, 12], "score": 0.5} for key in numbers]
        (folder / "detections" / f"flickr8k_{split}.json").write_text(json.dumps(boxes))


def write_features(folder: Path) -> None:
    """Writes features that other tools extracted, and questions about their images."""
    said = {"sentences": [{"raw": caption, "tokens": caption.split()} for caption in CAPTIONS[:2]]}
    splits = ["train", "val", "val"]
    listed = [
        {"cocoid": key, "filename": f"{key}.jpg", "split": split, **said}
        for key, split in zip(SIZES, splits, strict=True)
    ]
    (folder / "dataset_coco.json").write_text(json.dumps({"images": listed}))
    lines = [tsv_line(key, features=np.ones((REGIONS[key], 2048), np.float32)) for key in SIZES]
    for name in ("trainval_resnet101_faster_rcnn_genome_36.tsv", "trainval_36.tsv"):
        write_tsv(folder / name, lines)
    write_vqa(folder / "coco_extract" / "train2014")
    write_vqa(folder / "val2014")
    write_photos(folder / "val2014", 4)
    write_coco_file(
        folder / "captions_val2014.json", {key: f"{key}.jpg" for key in SIZES}, dict.fromkeys(SIZES, CAPTIONS[:2])
    )
    (folder / "coco_extract" / "val2014").mkdir()
    file = "COCO_val2014_000000000012.jpg.npz"
    (folder / "coco_extract" / "train2014" / file).replace(folder / "coco_extract" / "val2014" / file)
    write_questions(folder / "QUESTIONS", range(70, 80), name="train2014")
    write_questions(folder / "QUESTIONS", range(120, 124))
    write_questions(folder / "QUESTIONS", range(120, 122), name="test-dev2015", answered=False)
    for name in NAMES:
        shutil.copy(folder / "QUESTIONS" / name.format("val2014"), folder)
    splits = ("train", "validation", "test")
    rows = [make_row(number, 49, width=2048, split=split) for split in splits for number in range(4)]
    dataset_of(rows, width=2048, split=True).save_to_disk(str(folder / "GRIDS"))


def write_layouts(folder: Path) -> None:
    """Writes COCO's files of boxes and captions, for synthetic scenes."""
    folder.mkdir()
    for split, number in (("train", 8), ("validation", 4), ("test", 20)):
        rows = load_scenes(split, size=8, validation=4, test=20)
        images = [{"id": row["image_id"], "width": 100, "height": 100} for row in rows]
        boxes, texts = [], []
        for number, row in enumerate(rows):
            for place, caption in enumerate(row["captions"]):
                about = {"id": 100 * number + place, "image_id": row["image_id"]}
                boxes.append({**about, "category_id": 1 + place % 2, "bbox": [place, 2, 30, 40]})
                texts.append({**about, "caption": caption})
        kinds = [{"id": 1, "name": "dog"}, {"id": 2, "name": "log"}]
        instances = {"images": images, "annotations": boxes, "categories": kinds}
        (folder / f"instances_{split}.json").write_text(json.dumps(instances))
        (folder / f"captions_{split}.json").write_text(json.dumps({"images": images, "annotations": texts}))


def write_clips(folder: Path) -> None:
    """Writes videos of moving scenes with their captions."""
    (folder / "clips").mkdir()
    lines = ["file_name,caption"]
    for number in range(4):
        clip = make_clip(7, 0, number)
        write_clip(folder / "clips" / f"{number}.mp4", 8, size=(32, 32), frames=draw_clip(clip, 8, 32))
        lines += [f"{number}.mp4,{caption}" for caption in clip.captions[:2]]
    (folder / "clips" / "metadata.csv").write_text("\n".join(lines) + "\n")
    shutil.copy(folder / "clips" / "0.mp4", folder / "new_clip.mp4")


def write_models(folder: Path) -> None:
    """Saves tiny models under the names that the commands use."""
    resnet = ResNetConfig(embedding_size=4, hidden_sizes=[8, 2048], depths=[1, 1])
    ResNetForImageClassification(resnet).save_pretrained(folder / "microsoft" / "resnet-50")
    CaptioningImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder / "microsoft" / "resnet-50")
    RTDetrForObjectDetection(RTDetrConfig(**DETECTOR)).save_pretrained(folder / "PekingU" / "rtdetr_r50vd")
    RTDetrImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder / "PekingU" / "rtdetr_r50vd")
    with mock.patch.object(guests, "WORDS", [*guests.WORDS, "dog", "grass"]):
        for name in GUESTS:
            guests.save(guests.tiny(name.lower()), folder / name)
    (folder / "FLORENCE2").rename(folder / "FLORENCE")
    guests.save(guests.tiny("clip"), folder / "openai" / "clip-vit-base-patch32")
    tokenizer = guests.bert_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder / "bert-base-uncased")
    tokenizer.save_pretrained(folder / "bert-base-uncased")
    for name in ("captioner", "MODEL"):
        save_model(pixel_captioner(), pixel_processor(), folder / "models" / name)
    save_model(mhsan.tiny_model(vision_config=mhsan.VISION), mhsan.tiny_processor(pixels=True), folder / "dual_encoder")
    answering = mcan.tiny_model(vision_config=mcan.VISION, visual_feature_size=None)
    save_model(answering, mcan.tiny_processor(pixels=True), folder / "models" / "vqa")
    lines = [{"question": "Is there a ball?", "image": "photo.jpg"}, {"question": "What color?", "image": "photo.jpg"}]
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, lines)))
