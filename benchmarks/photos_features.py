"""Computes features of a whole EfficientNet-Lite2 for `mhsan-photos` from those of stage 5, in a quarter of the time.

    python benchmarks/photos_features.py --features stage5 --output features

Reads the folder written by `hf-ngsan extract --out-features stage5`, with its copies (see `photos_captioner.py`), and
writes the features of `hf-ngsan extract` without `--out-features`, except for the rounding of stage 5 to float16. Each
photograph has one row, because copies would be wrong negatives of each other.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import count, takewhile
from pathlib import Path

import photos_tail
import torch
from datasets import Dataset, DatasetDict

from hf_ngsan.data import caption_features, load_data
from hf_ngsan.data.saved import copy_folder
from hf_ngsan.extraction.vision import load_vision
from hf_ngsan.loading.provenance import stored_provenance, vision_provenance

IMAGE_SIZE, BATCH_SIZE = 352, 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", required=True, metavar="DIR", help="of stage 5")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder to write")
    options = parser.parse_args()
    vision, image_processor = load_vision(photos_tail.BACKBONE, image_size=IMAGE_SIZE)
    tail = photos_tail.Tail().eval()
    for name in photos_tail.STAGES:
        tail.stages[name].load_state_dict(vision.backbone.stages[name].state_dict())
    description = json.dumps(stored_provenance({**vision_provenance(vision, image_processor), "dtype": "float16"}))
    columns = caption_features(tail.feature_size, dtype="float16")
    copies = takewhile(Path.is_dir, (copy_folder(options.features, number) for number in count(1)))
    places = {Path(options.features): options.output}
    places |= {folder: copy_folder(options.output, number) for number, folder in enumerate(copies, 1)}
    for source, place in places.items():
        if place.is_dir() and (place / "dataset_dict.json").is_file():
            continue
        splits = ("train", "validation") if place == options.output else ("train",)

        def rows_of(split: str, source: Path = source) -> Iterator[dict]:
            rows = load_data(f"features:{source}", split)
            names = rows["file_name"]
            once = sorted({name: place for place, name in reversed(list(enumerate(names)))}.values())
            for first in range(0, len(once), BATCH_SIZE):
                batch = [rows[place] for place in once[first : first + BATCH_SIZE]]
                maps = torch.stack([torch.as_tensor(row["visual_features"]) for row in batch]).float()
                with torch.inference_mode():
                    features, boxes = tail(maps)
                for row, row_features, its_boxes in zip(batch, features.half().numpy(), boxes.numpy(), strict=True):
                    known = {name: row[name] for name in columns if name in row}
                    yield {**known, "visual_features": row_features, "visual_boxes": its_boxes}

        parts = {}
        for split in splits:
            parts[split] = Dataset.from_generator(rows_of, columns, gen_kwargs={"split": split}, split=split)
            parts[split].info.description = description
        DatasetDict(parts).save_to_disk(place)
        print(f"{place}: {', '.join(f'{len(part):,} rows of {split}' for split, part in parts.items())}", flush=True)


if __name__ == "__main__":
    main()
