"""Everything that the commands of README and docs read, tiny: photographs, features, models, questions, videos."""

import shutil
from pathlib import Path
from unittest import mock

import numpy as np
import torch
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
from hf_ngsan.loading.models import save_model
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from tests.conversion.layouts import vgg_state_dict
from tests.data.formats.files import REGIONS, SIZES, tsv_line, write_tsv, write_vqa
from tests.data.rows import dataset_of, make_row
from tests.data.test_nlvr import example
from tests.data.test_nlvr import write as write_statements
from tests.data.test_vatex import write as write_videos
from tests.extraction.test_vision import DETECTOR
from tests.extraction.tiny import write_photos
from tests.guests import tiny as guests
from tests.models.mcan import tiny as mcan
from tests.models.mhsan import tiny as mhsan
from tests.models.test_videos import write_clip
from tests.models.tiny_photos import pixel_captioner, pixel_processor
from tests.tasks.tiny_translation import write_pairs
from tests.test_documents import ROOT
from tests.test_photographs import encoded, write_data

VALIDATION = (12, *range(20, 69))
"""Ids of the photographs for validation; some files in tests/pages/data name them."""


def write_inputs(folder: Path) -> None:
    """Writes the inputs of the commands: all datasets and models, with a few examples each."""
    shutil.copytree(ROOT / "tests" / "pages" / "data", folder, dirs_exist_ok=True)
    with Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False)) as photograph:
        for name in ("photo", "another", "new_photo"):
            photograph.convert("RGB").resize((160, 160)).save(folder / f"{name}.jpg")
    for split, first in (("train", 1), ("validation", 11)):
        photos = write_photos(folder / "photos" / split, 6, first)
        with Image.open(photos / f"{first + 1:06d}.png") as small:
            small.resize((520, 360)).save(photos / f"{first + 1:06d}.png")
    for split, first in (("train2017", 1), ("train2014", 1), ("val2014", 11)):
        write_photos(folder / "coco" / split, 4, first)
    for name in ("flickr8k", "everyday", "general_photos", "SOURCE"):
        write_splits(folder / name, 50 if name == "flickr8k" else 20)
    shutil.copy(folder / "SOURCE" / "validation.parquet", folder / "SOURCE" / "test.parquet")
    write_features(folder)
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
    for number in range(4):
        frames = draw_clip(make_clip(7, 0, number), 8, 32)
        write_clip(folder / "clips" / f"{number}.mp4", 8, size=(32, 32), frames=frames)
    shutil.copy(folder / "clips" / "0.mp4", folder / "new_clip.mp4")
    write_models(folder)
    for name in ("benchmarks", "conversion", "examples"):
        (folder / name).symlink_to(ROOT / name)


def write_splits(folder: Path, number: int) -> None:
    """Writes photographs in Parquet files: 6 for training, and a number of them for validation."""
    captions = (("a circle over a box", "a circle near a box", "a circle left"), ("the blue square", "some square"))
    write_data(folder, {key: encoded(key) for key in range(6, 12)}, captions)
    write_data(folder / "others", {key: encoded(key) for key in VALIDATION[:number]}, captions)
    (folder / "others" / "validation.parquet").replace(folder / "validation.parquet")
    shutil.rmtree(folder / "others")


def write_features(folder: Path) -> None:
    """Writes features that other tools extracted."""
    lines = [tsv_line(key, features=np.ones((REGIONS[key], 2048), np.float32)) for key in SIZES]
    for name in ("trainval_resnet101_faster_rcnn_genome_36.tsv", "trainval_36.tsv"):
        write_tsv(folder / name, lines)
    write_vqa(folder / "coco_extract" / "train2014")
    write_vqa(folder / "val2014")
    write_photos(folder / "val2014", 4)
    (folder / "coco_extract" / "val2014").mkdir()
    file = "COCO_val2014_000000000012.jpg.npz"
    (folder / "coco_extract" / "train2014" / file).replace(folder / "coco_extract" / "val2014" / file)
    for file in (folder / "QUESTIONS").glob("*val2014*"):
        shutil.copy(file, folder)
    splits = ("train", "validation", "test")
    rows = [make_row(number, 49, width=2048, split=split) for split in splits for number in range(4)]
    dataset_of(rows, width=2048, split=True).save_to_disk(str(folder / "GRIDS"))


def write_models(folder: Path) -> None:
    """Saves tiny models under the names that the commands use."""
    resnet = ResNetConfig(embedding_size=4, hidden_sizes=[8, 2048], depths=[1, 1])
    ResNetForImageClassification(resnet).save_pretrained(folder / "microsoft" / "resnet-50")
    CaptioningImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder / "microsoft" / "resnet-50")
    RTDetrForObjectDetection(RTDetrConfig(**DETECTOR)).save_pretrained(folder / "PekingU" / "rtdetr_r50vd")
    RTDetrImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder / "PekingU" / "rtdetr_r50vd")
    with mock.patch.object(guests, "WORDS", [*guests.WORDS, "dog", "grass"]):
        for name in ("BLIP", "GIT", "FLORENCE2", "CLIP", "SIGLIP"):
            guests.save(guests.tiny(name.lower()), folder / name)
    (folder / "FLORENCE2").rename(folder / "FLORENCE")
    guests.save(guests.tiny("clip"), folder / "openai" / "clip-vit-base-patch32")
    tokenizer = guests.bert_tokenizer()
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    BertModel(BertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder / "bert-base-uncased")
    tokenizer.save_pretrained(folder / "bert-base-uncased")
    torch.save(vgg_state_dict(), folder / "vgg11.pth")
    save_model(pixel_captioner(), pixel_processor(), folder / "models" / "captioner")
    save_model(mhsan.tiny_model(vision_config=mhsan.VISION), mhsan.tiny_processor(pixels=True), folder / "dual_encoder")
    answering = mcan.tiny_model(vision_config=mcan.VISION, visual_feature_size=None)
    save_model(answering, mcan.tiny_processor(pixels=True), folder / "models" / "vqa")
