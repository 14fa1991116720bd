"""Effect of geometry on captioners of regions: for photographs whose captions have relation words and for others, and
the share of captions that change when two detected objects exchange their boxes.

    hf-ngsan reproduce ngsan --table 6 --data features:REGIONS --scale small --output runs/regions
    python benchmarks/relation_captions.py --runs runs/regions --data features:REGIONS

The script reads the captions of `reproduce`. A photograph shows a relation if at least `--captions` of its references
have such a word. An effect is the difference in CIDEr-D times 100 from SAN, averaged over seeds and photographs, with
the 95% interval of a paired bootstrap.
"""

import argparse
import re
from pathlib import Path

import numpy as np

from hf_ngsan.data import load_data
from hf_ngsan.loading.models import load_captioner
from hf_ngsan.metrics.comparison import compare
from hf_ngsan.reproduction import folder_name
from hf_ngsan.reproduction.results import item_scores
from hf_ngsan.tasks.captioning_generation import generate_captions, greedily

WORDS = (
    r"above|across|along|alongside|among|around|behind|below|beneath|beside|between|facing|far|in front of|inside|left|"
    r"near|next to|on top of|opposite|outside|over|right|through|towards?|under|underneath"
)
RELATION = re.compile(rf"\b(?:{WORDS})\b", re.IGNORECASE)
BASELINE = "SAN"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, required=True, metavar="DIR", help="folder of hf-ngsan reproduce")
    parser.add_argument("--data", required=True, metavar="DATASET", help="features:REGIONS, with names of objects")
    parser.add_argument("--models", nargs="+", default=["SAN", "N-SAN", "G-SAN", "NG-SAN", "NG-SAN signed"])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--captions", type=int, default=3, metavar="N", help="references with a relation word")
    parser.add_argument("--exchanges", type=int, default=0, metavar="N", help="seeds whose boxes are exchanged")
    options = parser.parse_args()
    rows = load_data(options.data, "validation")
    related = np.array([sum(map(bool, map(RELATION.search, texts))) >= options.captions for texts in rows["captions"]])
    print(f"{related.sum()} photographs of relations, {(~related).sum()} others")
    scores = {}
    for name in options.models:
        folders = [options.runs / "runs" / f"{folder_name(name)}-{seed}" for seed in options.seeds]
        by_seed = [item_scores("cider_d", folder.with_name(f"{folder.name}.results"), rows) for folder in folders]
        scores[name] = np.mean(by_seed, axis=0)
        for title, chosen in (("relations", related), ("others", ~related)):
            line = f"{name}\t{title}\t{scores[name][chosen].mean():.1f}"
            if name != BASELINE:
                effect = compare((scores[name] - scores[BASELINE])[chosen])
                line += f"\t{effect.difference:+.1f} ({effect.interval[0]:+.1f} to {effect.interval[1]:+.1f})"
            print(line, flush=True)
        for folder in folders[: options.exchanges]:
            print(f"{folder.name}\t{exchanged(folder, rows)}", flush=True)


def exchanged(folder: Path, rows) -> str:
    """Returns the share of captions that change when the best two objects of different classes exchange boxes."""
    model, processor = load_captioner(folder)
    before, after = [], []
    for row in map(dict, rows):
        names = list(row["objects"])
        others = [place for place, name in enumerate(names) if name and name != names[0]]
        if not names[0] or not others:
            continue
        boxes = row["visual_boxes"].copy()
        boxes[[0, others[0]]] = boxes[[others[0], 0]]
        before.append(row)
        after.append({**row, "visual_boxes": boxes})
    texts = [generate_captions(model, processor, batch, **greedily(20)) for batch in (before, after)]
    changed = [first != second for first, second in zip(*texts, strict=True)]
    return f"{np.mean(changed):.1%} of {len(changed)} captions change"


if __name__ == "__main__":
    main()
