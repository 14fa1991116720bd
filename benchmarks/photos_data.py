"""Writes the training photographs of `ngsan-photos` and `mhsan-photos` as a dataset with the splits train and
validation.

    python benchmarks/photos_data.py --data DIR --output photos [--machine-captions VinVL_base_val2014.tsv]

DIR has folders of Parquet files with the columns `image`, `image_id`, `file_name` and `captions`: `flickr8k` (6,000
photographs to train on, 1,000 for validation), `general_photos` (1,257 and 100: Pascal-1K's twenty kinds of objects,
and COCO) and `coco_more` (961 of COCO), and `coco_photos` (96 of COCO with `captions.json`). An epoch uses each
photograph of Pascal-1K three times, those of COCO with several captions twice, and all others once. Each use is a
separate row with separate augmentation. The machine captions, from https://github.com/microsoft/PICa (MIT), are the
second caption of photographs of COCO's val2014 with one caption.
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, Features, Image, List, Value, load_dataset

TIMES = {"pascal1k": 3, "coco": 2, "single": 1, "flickr8k": 1}
"""Rows of a photograph in an epoch, by its source; `single` are those of COCO with one or two captions."""
COLUMNS = Features(
    {
        "image": Image(),
        "image_id": Value("int64"),
        "file_name": Value("string"),
        "captions": List(Value("string")),
        "source": Value("string"),
    }
)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, type=Path, metavar="DIR", help="folder of the four folders")
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="folder of Parquet files to write")
    parser.add_argument("--machine-captions", type=Path, metavar="FILE", help="VinVL's captions of COCO's val2014")
    parser.add_argument("--validation", type=int, default=400, metavar="N", help="of Flickr8k (%(default)s)")
    return parser.parse_args()


def parquet_rows(folder: Path, split: str) -> list[dict[str, Any]]:
    rows = load_dataset("parquet", data_files=str(folder / f"{split}-*.parquet"), split="train")  # nosec B615
    return list(rows.cast_column("image", Image(decode=False)))


def coco_photos(folder: Path) -> list[dict[str, Any]]:
    content = json.loads((folder / "captions.json").read_text())
    captions: dict[int, list[str]] = {}
    for annotation in content["annotations"]:
        captions.setdefault(annotation["image_id"], []).append(annotation["caption"])
    rows = []
    for image in content["images"]:
        name, image_id = image["file_name"], image["id"]
        picture = {"bytes": (folder / "images" / name).read_bytes(), "path": name}
        rows.append({"image": picture, "image_id": image_id, "file_name": name, "captions": captions[image_id]})
    return rows


def coco_id(file_name: str) -> int:
    """Returns the COCO id in the name of a file, such as `COCO_val2014_000000391895.jpg`."""
    return int(Path(file_name).stem.rpartition("_")[2])


def training_rows(data: Path, machine_captions: dict[int, str]) -> list[dict[str, Any]]:
    rows = [{**row, "source": "flickr8k"} for row in parquet_rows(data / "flickr8k", "train")]
    general = parquet_rows(data / "general_photos", "train")
    for row in [*general, *parquet_rows(data / "coco_more", "train"), *coco_photos(data / "coco_photos")]:
        captions, source = list(row["captions"]), row.get("source", "")
        if source != "pascal1k":
            machine = machine_captions.get(coco_id(row["file_name"]))
            if len(captions) == 1 and machine is not None and machine not in captions:
                captions.append(machine)
            source = "coco" if len(captions) > 2 else "single"
        rows.append({**row, "captions": captions, "source": source})
    return [row for row in rows for _ in range(TIMES[row["source"]])]


def validation_rows(data: Path, number: int) -> list[dict[str, Any]]:
    rows = [{**row, "source": "flickr8k"} for row in parquet_rows(data / "flickr8k", "validation")[:number]]
    return rows + [{**row, "source": "pascal1k"} for row in parquet_rows(data / "general_photos", "validation")]


def as_dataset(rows: list[dict[str, Any]], first: int) -> Dataset:
    """Returns rows with ids counted from `first`, because ids of different sources may be equal."""
    numbered = [{**row, "image_id": first + place} for place, row in enumerate(rows)]
    return Dataset.from_list([{name: row[name] for name in COLUMNS} for row in numbered], features=COLUMNS)


def main() -> None:
    options = parse_arguments()
    machine: dict[int, str] = {}
    if options.machine_captions is not None:
        with open(options.machine_captions, newline="") as lines:
            fields = csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
            machine = {int(image_id): json.loads(answers)[0]["caption"] for image_id, answers in fields}
    training = as_dataset(training_rows(options.data, machine), 0)
    validation = as_dataset(validation_rows(options.data, options.validation), 1_000_000)
    options.output.mkdir(parents=True, exist_ok=True)
    for split, rows in DatasetDict({"train": training, "validation": validation}).items():
        rows.to_parquet(options.output / f"{split}-00000-of-00001.parquet")
        rows_by_source = {name: rows["source"][:].count(name) for name in dict.fromkeys(rows["source"])}
        print(f"{split}: {len(rows):,} rows, {rows_by_source}")


if __name__ == "__main__":
    main()
