"""Features of detected objects for the dataset `relations:DIR`: crops of objects, encoded separately, and features
pooled from the map of the whole photograph, whose cells encode their position.

    python benchmarks/relations_features.py --data DATA --output features    # features/crops, pooled and reduced

DATA has the folders `flickr8k`, `general_photos`, `coco_more` and `spatial_statements`, with photographs as Parquet
files, and `detections`, COCO annotations with a score. Photographs with judged statements are never used
for training. Their objects have a score of 0.5, or are the best ones named by a statement. The objects of all other
photographs have a score of 0.5 and belong to at least two classes.
"""

import argparse
import io
import json
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import torch
from datasets import Dataset, DatasetDict, Features, List, Value
from PIL import Image

from hf_ngsan.data.contract import caption_features, clamp_boxes
from hf_ngsan.data.scenes import FEATURE_SIZE
from hf_ngsan.extraction.vision import load_vision

SPLITS = {
    "train": [("flickr8k", "train"), ("general_photos", "train")],
    "test": [("flickr8k", "validation"), ("general_photos", "validation"), ("coco_more", "")],
    "statements": [("spatial_statements", "")],
}
MIN_SCORE, MIN_NAMED_SCORE = 0.5, 0.1
LENGTH = 2**0.5
CROP_SIZE = 96
BACKBONE = "efficientnet-lite0"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, metavar="DATA", help="folder of the photographs")
    parser.add_argument("--output", type=Path, required=True, metavar="DIR", help="folder to write to")
    parser.add_argument("--limit", type=int, metavar="N", help="maximum number of photographs of each split (all)")
    options = parser.parse_args()
    encoders = {"crops": load_vision(BACKBONE, image_size=CROP_SIZE), "pooled": load_vision(BACKBONE)}
    judged = {row["image_id"] for row in photographs(options.data / "spatial_statements", "")}
    written: dict[str, dict[str, Dataset]] = {name: {} for name in encoders}
    for split, sources in SPLITS.items():
        seen = set(judged) if split != "statements" else set()
        rows: dict[str, list[dict]] = {name: [] for name in encoders}
        for source, part in sources:
            detections = read_detections(options.data / "detections" / f"{'_'.join(filter(None, (source, part)))}.json")
            for row in photographs(options.data / source, part):
                objects = chosen(detections[row["image_id"]], row)
                if row["image_id"] in seen or len({entry["name"] for entry in objects}) < 2:
                    continue
                if options.limit is not None and len(rows["crops"]) >= options.limit:
                    break
                seen.add(row["image_id"])
                for name, features in encode(encoders, row["image"], objects).items():
                    rows[name].append(as_row(row, objects, features))
        for name, entries in rows.items():
            features = caption_features(len(entries[0]["visual_features"][0]), objects=True)
            features |= {"object_scores": List(Value("float32"))}
            more = (
                {"statements": List(Value("string")), "labels": List(Value("int64"))} if split == "statements" else {}
            )
            written[name][split] = Dataset.from_list(entries, features=Features(features | more))
        print(f"{split}: {len(rows['crops'])} photographs", flush=True)
    written["reduced"] = reduced(written["crops"])
    for name, splits in written.items():
        DatasetDict(splits).save_to_disk(str(options.output / name))


def reduced(crops: dict[str, Dataset]) -> dict[str, Dataset]:
    """Returns the principal components of features of crops, with the dimension and length of features of scenes, for
    training captioners of scenes further."""
    vectors = np.concatenate([np.array(row, dtype=np.float32) for row in crops["train"]["visual_features"]])
    _, values, axes = np.linalg.svd(vectors - vectors.mean(0), full_matrices=False)
    scale = LENGTH * len(vectors) ** 0.5 / values[:FEATURE_SIZE] / FEATURE_SIZE**0.5
    small = {}
    for split, rows in crops.items():
        scaled = [(np.array(row) - vectors.mean(0)) @ axes[:FEATURE_SIZE].T * scale for row in rows["visual_features"]]
        features = Features({**rows.features, **caption_features(FEATURE_SIZE, boxes=False)})
        small[split] = Dataset.from_dict({**rows.to_dict(), "visual_features": scaled}, features=features)
    return small


def photographs(folder: Path, part: str) -> Iterator[dict[str, Any]]:
    for file in sorted(folder.rglob(f"{part}*.parquet")):
        for row in pq.read_table(file).to_pylist():
            if row["image"] is not None and row["image"].get("bytes"):
                yield row


def read_detections(file: Path) -> dict[int, list[dict]]:
    """Returns the objects of each photograph in order of their scores, with boxes divided by width and height."""
    content = json.loads(file.read_text())
    names = {category["id"]: category["name"] for category in content["categories"]}
    sizes = {image["id"]: (image["width"], image["height"]) for image in content["images"]}
    detections: dict[int, list[dict]] = defaultdict(list)
    for annotation in sorted(content["annotations"], key=lambda annotation: -annotation["score"]):
        x, y, width, height = annotation["bbox"]
        box = np.array([x, y, x + width, y + height]) / np.tile(sizes[annotation["image_id"]], 2)
        entry = {"name": names[annotation["category_id"]], "box": box.clip(0, 1), "score": annotation["score"]}
        detections[annotation["image_id"]].append(entry)
    return detections


def chosen(objects: list[dict], row: dict) -> list[dict]:
    """Returns the objects of a photograph with a high score, and the best ones named by a judged statement."""
    named = " ".join(row.get("statements") or ()).lower()
    kept, surest = [], set()
    for entry in objects:
        is_named = entry["name"] in named and entry["name"] not in surest and entry["score"] >= MIN_NAMED_SCORE
        surest.add(entry["name"])
        if entry["score"] >= MIN_SCORE or is_named:
            kept.append(entry)
    return kept


def encode(encoders: dict[str, Any], image: dict, objects: list[dict]) -> dict[str, np.ndarray]:
    """Returns features `(N, D)` of the objects of a photograph, by encoder."""
    with Image.open(io.BytesIO(image["bytes"])) as opened:
        picture = opened.convert("RGB")
    boxes, _ = clamp_boxes(np.stack([entry["box"] for entry in objects]))
    crops = [picture.crop(corners(box, picture.size)) for box in boxes]
    with torch.inference_mode():
        model, processor = encoders["crops"]
        alone = model(**processor(images=crops, return_tensors="pt")).visual_features.mean(1)
        model, processor = encoders["pooled"]
        pooled = model(**processor(images=[picture], return_tensors="pt"), visual_boxes=torch.from_numpy(boxes)[None])
    vectors = {"crops": alone.numpy(), "pooled": pooled.visual_features[0].numpy()}
    # All have the length of features of scenes: larger ones saturate attention before geometry is learned.
    return {name: LENGTH * rows / np.linalg.norm(rows, axis=1, keepdims=True) for name, rows in vectors.items()}


def corners(box: np.ndarray, size: tuple[int, int]) -> tuple[int, int, int, int]:
    low = np.floor(box[:2] * size).astype(int).clip(0, np.array(size) - 1)
    high = np.maximum(np.ceil(box[2:] * size).astype(int), low + 1)
    return int(low[0]), int(low[1]), int(high[0]), int(high[1])


def as_row(row: dict, objects: list[dict], features: np.ndarray) -> dict[str, Any]:
    boxes, _ = clamp_boxes(np.stack([entry["box"] for entry in objects]))
    made = {
        "image_id": row["image_id"],
        "visual_features": features.astype(np.float16),
        "visual_boxes": boxes,
        "captions": list(row.get("captions") or ["a photograph"]),
        "objects": [entry["name"] for entry in objects],
        "object_scores": [entry["score"] for entry in objects],
    }
    if "statements" in row:
        made |= {"statements": row["statements"], "labels": row["labels"]}
    return made


if __name__ == "__main__":
    main()
