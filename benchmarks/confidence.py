"""Tests whether the confidence of a captioner predicts right captions, on a dataset of photographs.

    python benchmarks/confidence.py --data images:flickr8k --split validation
    python benchmarks/confidence.py --data images:coco --split train --references 5

A caption counts as right if its CIDEr-D reaches the median of the calibration; document frequencies are those of the
dataset's references. Prints the area under the ROC curve (AUROC) of the confidence, with its 95% interval over images,
and of the mean log-probability; the expected calibration error (ECE); the share of right captions in four groups of
equal size, in order of confidence; the number of photographs marked as unlike the training images; and the numbers of
right and wrong captions with a warning.
"""

import argparse
import statistics

import numpy as np
from transformers import pipeline

from hf_ngsan.io.packaged import CAPTIONER
from hf_ngsan.loading.confidence import Confidence
from hf_ngsan.loading.models import find_model_folder
from hf_ngsan.metrics import CiderD
from hf_ngsan.tasks.caption_rows import load_rows
from hf_ngsan.tasks.captioning_analysis import area_under_curve, expected_calibration_error

RESAMPLES, GROUPS, REQUIRED = 1000, 4, 0.70


def interval(values: np.ndarray, is_right: np.ndarray) -> tuple[float, float]:
    """Returns the 95% interval of an AUROC over images, by bootstrap."""
    random = np.random.default_rng(0)
    picks = random.integers(len(values), size=(RESAMPLES, len(values)))
    areas = [area_under_curve(values[pick], is_right[pick]) for pick in picks if 0 < is_right[pick].mean() < 1]
    low, high = np.quantile(areas, [0.025, 0.975])
    return float(low), float(high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=CAPTIONER, help="(%(default)s)")
    parser.add_argument("--data", required=True, metavar="SPEC", help="photographs with captions")
    parser.add_argument("--split", default="validation", metavar="NAME", help="(%(default)s)")
    parser.add_argument(
        "--references", type=int, default=1, metavar="N", help="use only images with at least N captions"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="use only the first N images, to test the script")
    options = parser.parse_args()

    rows = load_rows(options.data, options.split, limit=options.limit)
    references = list(rows["captions"])
    captioner = pipeline("image-to-text", model=find_model_folder(options.model), batch_size=20)
    answers = [answer for [answer] in captioner(rows.select_columns("image"), return_confidence=True)]
    unlike = statistics.mean(answer["unlike_training"] for answer in answers)
    print(f"{len(rows)} photographs, {unlike:.1%} of them marked as unlike the training images")

    kept = [place for place, captions in enumerate(references) if len(captions) >= options.references]
    answers, references = [answers[place] for place in kept], [references[place] for place in kept]
    texts = [answer["generated_text"] for answer in answers]
    scores = CiderD().compute(predictions=texts, references=references, per_image=True)
    median = Confidence(options.model).calibration.median_cider_d
    is_right = np.array(scores["per_image"]["cider_d"]) >= median
    print(
        f"CIDEr-D of {len(kept)} captions: {scores['cider_d']:.3f}; {is_right.mean():.1%} are right, from {median:.3f}"
    )
    for name, key in (("confidence", "confidence"), ("log-probability alone", "score")):
        values = np.array([answer[key] for answer in answers])
        low, high = interval(values, is_right)
        required = f"; required: at least {REQUIRED}" if key == "confidence" else ""
        print(f"AUROC of the {name}: {area_under_curve(values, is_right):.3f} ({low:.3f} to {high:.3f}){required}")
    confidences = np.array([answer["confidence"] for answer in answers])
    print(f"expected calibration error: {expected_calibration_error(confidences, is_right):.3f}")
    doubted = np.array([answer["doubt"] is not None for answer in answers])
    print(
        f"with a doubt: {doubted[~is_right].mean():.1%} of the wrong, {doubted[is_right].mean():.1%} of the right ones"
    )
    for part in np.array_split(np.argsort(confidences, kind="stable"), GROUPS):
        print(f"  confidence {confidences[part].mean():.2f}: {is_right[part].mean():.2f} are right")


if __name__ == "__main__":
    main()
