"""A vision encoder, an image processor and photos that are small enough for a fast extraction."""

import json
from pathlib import Path

import numpy
import torch
from datasets import load_from_disk
from PIL import Image

from hf_ngsan.extraction import extract_features
from hf_ngsan.models.configuration_vision import VisionConfig
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_vision import VisionModel

BACKBONE = {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]}
SIDE = 32


def tiny_vision(seed: int = 0, **fields) -> VisionModel:
    torch.manual_seed(seed)
    return VisionModel(VisionConfig(backbone_config=BACKBONE, **{"grid_size": [2, 2], **fields})).eval()


def tiny_processor(**settings) -> CaptioningImageProcessor:
    return CaptioningImageProcessor(**{"size": {"height": SIDE, "width": SIDE}, **settings})


def write_photos(folder: Path, number: int, first: int = 1) -> Path:
    """Photos of noise `000001.png`, ..., all with different sizes."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(first, first + number):
        pixels = numpy.random.default_rng(index).integers(0, 256, (20 + index, 30 + index, 3), numpy.uint8)
        Image.fromarray(pixels).save(folder / f"{index:06d}.png")
    return folder


def write_coco_file(file: Path, names: dict[int, str], captions: dict[int, list[str]] | None = None) -> Path:
    content = {"images": [{"id": key, "file_name": name} for key, name in names.items()]}
    if captions is not None:
        pairs = [(key, text) for key, texts in captions.items() for text in texts]
        content["annotations"] = [
            {"id": index, "image_id": key, "caption": text} for index, (key, text) in enumerate(pairs)
        ]
    file.write_text(json.dumps(content))
    return file


def extract(photos, output, *, model=None, processor=None, **options):
    """`extract_features` with small shards and without additional processes."""
    options = {"batch_size": 2, "images_per_shard": 4, "num_workers": 0, **options}
    return extract_features(model or tiny_vision(), processor or tiny_processor(), photos, output, **options)


def rows_of(output) -> list[dict]:
    """Every row of a saved dataset, with exact features and boxes."""
    return load_from_disk(str(output)).to_list()


def files_of(output) -> dict[str, bytes]:
    """The files that a reader of the dataset opens."""
    names = [
        "state.json",
        "dataset_info.json",
        "skipped.json",
        *sorted(file.name for file in Path(output).glob("*.arrow")),
    ]
    return {name: (Path(output) / name).read_bytes() for name in names}


def mean_in_box(feature_map, box):
    """The mean of 7 x 7 bilinear samples of a map `(C, h, w)` in a box, one by one."""
    places = [(box[:2] + (box[2:] - box[:2]) * (numpy.array([i, j]) + 0.5) / 7) for i in range(7) for j in range(7)]
    means = []
    for channel in feature_map:
        height, width = channel.shape
        samples = []
        for x, y in places * numpy.array([width, height]) - 0.5:
            rows = [numpy.interp(x, range(width), row) for row in channel]  # which continues unchanged outside
            samples.append(numpy.interp(y, range(height), rows))
        means.append(numpy.mean(samples))
    return means
