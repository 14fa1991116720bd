"""Agreement of caption metrics with people: Kendall's tau on the judged captions of Flickr8k.

The folder has `ExpertAnnotations.txt`, `CrowdFlowerAnnotations.txt` (Hodosh et al. 2013) and `captions.json`, which
maps each image to its five captions. The document frequencies of CIDEr-D are those of the judged pairs' references, as
in the public code, or those of the training captions.

    python benchmarks/human_judgements.py --judgements flickr8k/human_judgements --meteor
    python benchmarks/human_judgements.py --judgements flickr8k/human_judgements --train images:flickr8k
"""

import argparse
import csv
import json
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import kendalltau

from hf_ngsan.data import load_data
from hf_ngsan.metrics import CaptionMetrics, DocumentFrequency

NAMES = ("bleu_1", "bleu_4", "rouge_l", "meteor", "cider_d")


class Group(NamedTuple):
    """A group of people who judged captions.

    Attributes:
        file, columns: file with their scores, and number of columns with scores.
        variant: variant of Kendall's tau, b or c.
        judged_references: treatment of an image's own captions that were judged: `True` keeps them as references and
            leaves out their judgements; `False` uses their judgements and excludes them from the references.
        published: tau times 100 from Hessel et al. 2021, tables 1 and 2.
    """

    file: str
    columns: int
    variant: str
    judged_references: bool
    published: dict[str, float]


GROUPS = {
    "experts": Group(
        "ExpertAnnotations.txt", 3, "c", True, dict(zip(NAMES, (32.3, 30.8, 32.3, 41.8, 43.9), strict=True))
    ),
    "crowd": Group(
        "CrowdFlowerAnnotations.txt", 1, "b", False, dict(zip(NAMES, (17.9, 16.9, 19.9, 22.2, 24.6), strict=True))
    ),
}


class Judgement(NamedTuple):
    """A caption that people compared with an image; most captions belong to other images.

    Attributes:
        image: file name.
        caption: its text.
        is_own: whether the caption belongs to the image.
        scores: 1 to 4 from experts; from the crowd, the share of positive answers.
    """

    image: str
    caption: str
    is_own: bool
    scores: tuple[float, ...]


def read_judgements(folder: Path, group: Group, captions: dict[str, list[str]]) -> list[Judgement]:
    judged = []
    with open(folder / group.file, encoding="utf-8", newline="") as file:
        for image, caption, *rest in csv.reader(file, delimiter="\t"):
            described, _, number = caption.rpartition("#")
            scores = tuple(map(float, rest[: group.columns]))
            judged.append(Judgement(image, captions[described][int(number)], described == image, scores))
    return judged


def correlations(folder: Path, group: Group, metrics: CaptionMetrics) -> tuple[int, dict[str, float]]:
    """Returns the number of judged pairs, and Kendall's tau times 100 of each metric with every single score.

    Args:
        folder: folder of the judgements.
        group: the people who judged.
        metrics: metrics that score the captions.
    """
    captions = json.loads((folder / "captions.json").read_text(encoding="utf-8"))
    judged = read_judgements(folder, group, captions)
    no_references = defaultdict(set)
    if group.judged_references:
        judged = [item for item in judged if not item.is_own]
    else:
        for item in judged:
            no_references[item.image].add(item.caption)
    references = [[text for text in captions[item.image] if text not in no_references[item.image]] for item in judged]
    predictions = [item.caption for item in judged]
    human = np.array([item.scores for item in judged])
    values = metrics.compute(predictions=predictions, references=references, per_image=True)["per_image"]
    automatic = {name: np.repeat(values[name], human.shape[1]) for name in NAMES if name in values}
    return len(judged), {
        name: 100 * kendalltau(scores, human.ravel(), variant=group.variant).statistic
        for name, scores in automatic.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judgements", required=True, type=Path, metavar="DIR")
    parser.add_argument("--train", metavar="SPEC", help="dataset with the split train for document frequencies")
    parser.add_argument("--meteor", action="store_true", help="also compute METEOR, which needs the extra eval")
    options = parser.parse_args()
    frequency = None
    if options.train is not None:
        frequency = DocumentFrequency.from_captions(load_data(options.train, "train")["captions"])
    parts = ("bleu", "rouge_l", "cider_d", *(("meteor",) if options.meteor else ()))
    metrics = CaptionMetrics(document_frequency=frequency, metrics=parts)
    for name, group in GROUPS.items():
        number, taus = correlations(options.judgements, group, metrics)
        print(f"{name}, tau-{group.variant} ({number} pairs)")
        for metric, tau in taus.items():
            print(f"  {metric:<8} {tau:5.1f}   published {group.published[metric]:5.1f}")


if __name__ == "__main__":
    main()
