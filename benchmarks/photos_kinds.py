"""How often a captioner names the object that a photograph of Pascal-1K shows, for each of the twenty kinds.

    python benchmarks/photos_kinds.py --data images:general_photos
    hf-ngsan evaluate --model MODEL --data images:general_photos --split validation --output captions.json
    python benchmarks/photos_kinds.py --data images:general_photos --captions captions.json

The dataset has the column `category`. A caption names an object if it has one of the words of `NAMES`, in singular or
plural. Prints, for each kind, the captions that name it beside the share of people's sentences that do, and CIDEr-D
over all photographs. With `--captions` those of a file are counted, else `--model` captions the photographs.
"""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path

from datasets import Image
from transformers import pipeline

from hf_ngsan.data import load_data
from hf_ngsan.data.images.sources import open_split
from hf_ngsan.io.packaged import CAPTIONER
from hf_ngsan.loading.models import find_model_folder
from hf_ngsan.metrics import CiderD

NAMES = {
    "aeroplane": "aeroplane airplane plane jet aircraft airliner biplane",
    "bicycle": "bicycle bike",
    "bird": "bird duck goose geese parrot eagle owl hawk pigeon seagull swan penguin chicken rooster ostrich",
    "boat": "boat ship canoe kayak sailboat ferry yacht gondola raft",
    "bottle": "bottle",
    "bus": "bus buses trolley",
    "car": "car vehicle automobile truck van suv taxi",
    "cat": "cat kitten",
    "chair": "chair armchair recliner stool",
    "cow": "cow cattle bull calf calves ox oxen",
    "diningtable": "table",
    "dog": "dog puppy puppies",
    "horse": "horse pony ponies",
    "motorbike": "motorbike motorcycle bike moped scooter",
    "person": "person people man men woman women boy girl child children kid baby babies lady ladies guy player",
    "pottedplant": "plant flower pot tree bush",
    "sheep": "sheep lamb ram goat",
    "sofa": "sofa couch loveseat",
    "train": "train locomotive railcar subway tram",
    "tvmonitor": "tv television monitor screen computer laptop",
}
PATTERNS = {kind: re.compile(rf"\b({'|'.join(words.split())})s?\b", re.IGNORECASE) for kind, words in NAMES.items()}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, metavar="images:SOURCE", help="photographs with a column category")
    parser.add_argument("--split", default="validation", metavar="NAME", help="(%(default)s)")
    parser.add_argument("--model", default=CAPTIONER, metavar="NAME", help="the captioner (%(default)s)")
    parser.add_argument("--captions", type=Path, metavar="FILE", help="captions that hf-ngsan evaluate --output wrote")
    return parser.parse_args()


def kinds_table(captions: Sequence[str], references: Sequence[Sequence[str]], kinds: Sequence[str]) -> str:
    """Returns how often each kind is named, as Markdown, the most often named first, and the total."""
    named, of_people, number = dict.fromkeys(NAMES, 0), dict.fromkeys(NAMES, 0.0), dict.fromkeys(NAMES, 0)
    for caption, sentences, kind in zip(captions, references, kinds, strict=True):
        names_kind = PATTERNS[kind].search
        number[kind] += 1
        named[kind] += bool(names_kind(caption))
        of_people[kind] += sum(bool(names_kind(sentence)) for sentence in sentences) / len(sentences)
    lines = ["| photographs of | named by the captioner | by people's sentences |", "| --- | --- | --- |"]
    for kind in sorted(NAMES, key=lambda kind: -named[kind] / max(number[kind], 1)):
        share = of_people[kind] / max(number[kind], 1)
        lines.append(f"| {kind} | {named[kind]} of {number[kind]} | {share:.0%} |")
    total = sum(number.values())
    lines.append(f"| all | {sum(named.values())} of {total} | {sum(of_people.values()) / total:.0%} |")
    return "\n".join(lines)


def main() -> None:
    options = parse_arguments()
    source = options.data.removeprefix("images:")
    columns = ["image", "captions", "category", "image_id"]
    rows = open_split(source, options.split)[0].select_columns(columns)
    if options.captions is not None:
        written = {entry["image_id"]: entry["caption"] for entry in json.loads(options.captions.read_text())}
        captions = [written[image_id] for image_id in rows["image_id"]]
    else:
        captioner = pipeline("image-to-text", model=find_model_folder(options.model), batch_size=20)
        images = load_data(options.data, options.split).select_columns("image").cast_column("image", Image())
        captions = [answer["generated_text"] for [answer] in captioner(images)]
    references = list(map(list, rows["captions"]))
    print(kinds_table(captions, references, rows["category"]))
    score = CiderD().compute(predictions=captions, references=references)["cider_d"]
    print(f"\nCIDEr-D of {len(rows)} photographs: {score:.3f}")


if __name__ == "__main__":
    main()
