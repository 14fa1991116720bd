"""Captions photographs without captions, by a search under the constraint that captions name the detected objects.

    python benchmarks/photos_detections.py --model runs/photos/start --features unlabelled --detections FILE \\
        --known stage5 --known-detections FILE ... --output described

Anderson et al. (EMNLP 2017) search for captions with the words of detected objects by constrained beam search; Anderson
et al. (NeurIPS 2018) train on such captions. `--features`, features of photographs without captions, and `--known`, of
photographs with captions by people, are those that the captioner was trained on, such as maps of stage 5
(`photos_captioner.py`). The detections are COCO annotations with a score, matched by file name. People do not name
every object: `--known` and its detections give the share of captions that name an object of a class and a size. Only
objects that are named in half of the photographs are required. Writes `--known` together with the photographs that have
such an object, with one caption each, as additional training rows. Captions that repeat a word of more than three
letters are left out.
"""

import argparse
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import photos_tail  # noqa: F401  # the model type
import torch
from datasets import DatasetDict, concatenate_datasets

from hf_ngsan.data import load_data
from hf_ngsan.loading.models import load_model
from hf_ngsan.models.decoding import constrained_beam_search

MIN_SCORE, SIZES, MIN_SHARE, MIN_PHOTOGRAPHS, USUAL_SIZE = 0.5, (0.4, 0.2, 0.1, 0.05, 0.02), 0.5, 8, 0.05
"""Sizes are shares of the photograph. `USUAL_SIZE` is that of classes with fewer than `MIN_PHOTOGRAPHS` examples."""
MOST_OBJECTS, BATCH_SIZE = 2, 32
VISUAL = ("visual_features", "visual_boxes")
NAMES = {
    "airplane": "airplane plane jet airplanes planes",
    "bicycle": "bicycle bike bicycles bikes",
    "bird": "bird birds duck ducks",
    "boat": "boat boats ship",
    "car": "car cars vehicle",
    "cat": "cat kitten cats kittens",
    "cell phone": "phone phones cellphone",
    "couch": "couch sofa",
    "cow": "cow cows cattle",
    "dining table": "table tables",
    "dog": "dog dogs puppy",
    "donut": "donut donuts doughnut doughnuts",
    "fire hydrant": "hydrant",
    "motorcycle": "motorcycle motorcycles motorbike bike",
    "potted plant": "plant plants flowers",
    "sheep": "sheep lamb",
    "sports ball": "ball",
    "stop sign": "sign",
    "parking meter": "meter",
    "traffic light": "light lights",
    "teddy bear": "teddy bear bears",
    "tennis racket": "racket racquet tennis",
    "baseball bat": "bat baseball",
    "baseball glove": "glove baseball",
    "tv": "tv television monitor screen",
    "train": "train trains locomotive",
    "wine glass": "glass glasses wine",
    "hot dog": "hotdog sausage",
    "laptop": "laptop computer",
    "keyboard": "keyboard computer",
    "person": "",
}
"""Words of classes with more words than the name and its plural in -s; people are left to the captioner."""


def words_of(label: str) -> set[str]:
    return set(NAMES.get(label, f"{label} {label}s" if " " not in label else "").split())


def read_objects(files: list[Path]) -> dict[str, list[tuple[str, float]]]:
    """Returns class and size of the objects of each photograph by file name, in order of their scores."""
    objects: dict[str, list[tuple[str, float]]] = {}
    for file in files:
        content = json.loads(file.read_text())
        labels = {category["id"]: category["name"] for category in content["categories"]}
        images = {image["id"]: image for image in content["images"]}
        for image in images.values():
            objects.setdefault(image["file_name"], [])
        for detection in sorted(content["annotations"], key=lambda annotation: -annotation["score"]):
            image = images[detection["image_id"]]
            size = detection["bbox"][2] * detection["bbox"][3] / (image["width"] * image["height"])
            if detection["score"] >= MIN_SCORE:
                objects[image["file_name"]].append((labels[detection["category_id"]], size))
    return objects


def sizes_named(rows: Any, objects: dict[str, list[tuple[str, float]]]) -> dict[str, float]:
    """Returns for each class the minimum size of objects that people name in half of the photographs; 1 for never."""
    named: dict[tuple[str, float], list[bool]] = defaultdict(list)
    for name, captions in zip(rows["file_name"], rows["captions"], strict=True):
        words = {word.strip(".,") for caption in captions for word in caption.lower().split()}
        largest: dict[str, float] = {}
        for label, size in objects.get(name, ()):
            largest[label] = max(size, largest.get(label, 0.0))
        for label, size in largest.items():
            for bound in SIZES:
                if size >= bound:
                    named[label, bound].append(bool(words_of(label) & words))
    result: dict[str, float] = {}
    for label in {label for label, _ in named}:
        enough = [bound for bound in SIZES if len(named[label, bound]) >= MIN_PHOTOGRAPHS]
        good = [bound for bound in enough if sum(named[label, bound]) >= MIN_SHARE * len(named[label, bound])]
        result[label] = min(good, default=1.0) if enough else USUAL_SIZE
    return result


def required_words(
    objects: list[tuple[str, float]], sizes: dict[str, float], vocabulary: dict[str, int]
) -> tuple[tuple[int, ...], ...]:
    """Returns for each required object the ids of its alternative words."""
    required: dict[tuple[int, ...], None] = {}
    for label, size in objects:
        ids = tuple(sorted(vocabulary[word] for word in words_of(label) if word in vocabulary))
        if ids and size >= sizes.get(label, USUAL_SIZE):
            required.setdefault(ids)
    return tuple(required)[:MOST_OBJECTS]


def repeats(caption: str) -> bool:
    words = [word for word in caption.split() if len(word) > 3]
    return len(words) > len(set(words))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, metavar="DIR", help="a captioner")
    parser.add_argument("--features", required=True, metavar="DIR", help="its features, without captions")
    parser.add_argument("--detections", required=True, type=Path, metavar="FILE")
    parser.add_argument("--known", required=True, metavar="DIR", help="its features with captions")
    parser.add_argument("--known-detections", required=True, type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, processor = load_model(options.model, "captioning")
    model.eval()
    vocabulary = processor.tokenizer.get_vocab()
    sizes = sizes_named(load_data(f"features:{options.known}", "train"), read_objects(options.known_detections))
    print("named from a size of:", {label: size for label, size in sorted(sizes.items()) if size < 1})
    rows = load_data(f"features:{options.features}", "train")
    objects = read_objects([options.detections])
    groups: dict[tuple[tuple[int, ...], ...], list[int]] = defaultdict(list)
    for place, name in enumerate(rows["file_name"]):
        groups[required_words(objects[name], sizes, vocabulary)].append(place)
    groups.pop((), None)
    captions: dict[int, str] = {}
    for required, places in groups.items():
        for start in range(0, len(places), BATCH_SIZE):
            batch = places[start : start + BATCH_SIZE]
            batch_rows = [rows[place] for place in batch]
            features = {
                name: torch.stack([torch.as_tensor(row[name]) for row in batch_rows]).float() for name in VISUAL
            }
            sequences = model.generate(
                **features,
                custom_generate=constrained_beam_search,
                required_words=[list(ids) for ids in required],
                num_beams=3,
                max_new_tokens=20,
            )
            captions |= zip(batch, processor.batch_decode(sequences, skip_special_tokens=True), strict=True)
        print(f"{len(captions)} of {sum(map(len, groups.values()))}", end="\r", flush=True)
    places = sorted(place for place, caption in captions.items() if not repeats(caption))
    known = load_data(f"features:{options.known}", "train")
    added = {"captions": [[captions[place]] for place in places], "split": ["train"] * len(places)}
    described = rows.select(places).remove_columns([name for name in added if name in rows.column_names])
    for name, values in added.items():
        described = described.add_column(name, values)
    described = described.select_columns(known.column_names).cast(known.features)
    validation = load_data(f"features:{options.known}", "validation")
    splits = {"train": concatenate_datasets([known, described]), "validation": validation}
    DatasetDict(splits).save_to_disk(options.output)
    print(f"{len(places)} photographs with a caption, of {len(rows)}")


if __name__ == "__main__":
    main()
