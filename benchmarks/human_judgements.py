"""How well the caption metrics agree with people: Kendall's tau on the judged captions of Flickr8k.

The folder has `ExpertAnnotations.txt`, `CrowdFlowerAnnotations.txt` (Hodosh et al. 2013) and `captions.json`, which
maps each image to its five captions. The document frequencies of CIDEr-D are those of the judged pairs' references, as
in the public code, or those of the training captions.

    python benchmarks/human_judgements.py --judgements flickr8k/human_judgements --meteor
    python benchmarks/human_judgements.py --judgements flickr8k/human_judgements --train images:flickr8k
"""

import argparse
import csv
import json
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import kendalltau

from hf_ngsan.data import load_data
from hf_ngsan.metrics import CaptionMetrics, DocumentFrequency

NAMES = ("bleu_1", "bleu_4", "rouge_l", "meteor", "cider_d")
PUBLISHED = {"experts": (32.3, 30.8, 32.3, 41.8, 43.9), "crowd": (17.9, 16.9, 19.9, 22.2, 24.6)}
"""Hessel et al. 2021, tables 1 and 2; the values of METEOR and CIDEr among them."""


class Judgement(NamedTuple):
    """A caption that people compared with an image.

    Attributes:
        image: file name.
        caption: `FILE#NUMBER`, mostly of another image.
        scores: of the experts, 1 to 4; of the crowd the share that said yes.
    """

    image: str
    caption: str
    scores: tuple[float, ...]

    @property
    def is_own(self) -> bool:
        return self.caption.rpartition("#")[0] == self.image


class Counting(NamedTuple):
    """What is correlated.

    Attributes:
        who: `"experts"` or `"crowd"`.
        variant: of Kendall's tau, b or c.
        own: whether captions of the image itself are counted.
        left_out: whether such a caption is left out of its own references.
    """

    who: str
    variant: str
    own: bool = False
    left_out: bool = False


COUNTINGS = {
    "experts, tau-c, without own captions": Counting("experts", "c"),
    "crowd, tau-b, without own captions": Counting("crowd", "b"),
    "crowd, tau-b, own captions against the other four": Counting("crowd", "b", own=True, left_out=True),
    "crowd, tau-b, own captions against all five": Counting("crowd", "b", own=True),
}


def read_judgements(folder: Path, who: str) -> list[Judgement]:
    name, columns = {"experts": ("ExpertAnnotations.txt", 3), "crowd": ("CrowdFlowerAnnotations.txt", 1)}[who]
    with open(folder / name, encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t"))
    return [Judgement(image, caption, tuple(map(float, rest[:columns]))) for image, caption, *rest in rows]


def correlations(folder: Path, counting: Counting, metrics: CaptionMetrics) -> tuple[int, dict[str, float]]:
    """Returns the number of judged pairs, and Kendall's tau times 100 of each metric with every single score.

    Args:
        folder: of the judgements.
        counting: what is counted, and how.
        metrics: score the captions.
    """
    captions = json.loads((folder / "captions.json").read_text(encoding="utf-8"))
    judged = [one for one in read_judgements(folder, counting.who) if counting.own or not one.is_own]
    predictions, references = [], []
    for one in judged:
        file, _, number = one.caption.rpartition("#")
        predictions.append(captions[file][int(number)])
        own = int(number) if one.is_own and counting.left_out else None
        references.append([text for place, text in enumerate(captions[one.image]) if place != own])
    human = np.array([one.scores for one in judged])
    values = metrics.compute(predictions=predictions, references=references, per_image=True)["per_image"]
    automatic = {name: np.repeat(values[name], human.shape[1]) for name in NAMES if name in values}
    return len(judged), {
        name: 100 * kendalltau(scores, human.ravel(), variant=counting.variant).statistic
        for name, scores in automatic.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judgements", required=True, type=Path, metavar="DIR")
    parser.add_argument("--train", metavar="SPEC", help="dataset whose split train gives the document frequencies")
    parser.add_argument("--meteor", action="store_true", help="METEOR too, which needs Java and the eval extra")
    options = parser.parse_args()
    frequency = None
    if options.train is not None:
        frequency = DocumentFrequency.from_captions(load_data(options.train, "train")["captions"])
    parts = ("bleu", "rouge_l", "cider_d", *(("meteor",) if options.meteor else ()))
    metrics = CaptionMetrics(document_frequency=frequency, metrics=parts)
    for title, counting in COUNTINGS.items():
        number, found = correlations(options.judgements, counting, metrics)
        print(f"{title} ({number} pairs)")
        for name, published in zip(NAMES, PUBLISHED[counting.who], strict=True):
            if name in found:
                print(f"  {name:<8} {found[name]:5.1f}   published {published:5.1f}")


if __name__ == "__main__":
    main()
