"""Scores of captions of Flickr8k photographs when a dual encoder helps to choose among the beams.

    python benchmarks/flickr8k_reranking.py --images DIR

Prints CIDEr-D on the validation split of the first beam, and of the beam with the best sum of mean log-probability and
weighted similarity (`hf-ngsan caption --rerank-with`), for some weights; then the difference between the last weight
and the first beam with its 95% interval (paired bootstrap over images).
"""

import argparse
from typing import Any

import numpy as np

from hf_ngsan.loading.models import load_captioner, load_model
from hf_ngsan.metrics import CiderD
from hf_ngsan.metrics.comparison import compare
from hf_ngsan.tasks.caption_rows import load_rows
from hf_ngsan.tasks.captioning_files import CaptionedImage
from hf_ngsan.tasks.captioning_generation import caption_images
from hf_ngsan.tasks.retrieval_search import SIMILARITY_WEIGHT, Reranker


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", required=True, metavar="DIR", help="Flickr8k in a form that hf-ngsan train reads")
    parser.add_argument("--captioner", default="ngsan-photos", metavar="DIR", help="(%(default)s)")
    parser.add_argument("--dual-encoder", default="mhsan-photos", metavar="DIR", help="(%(default)s)")
    parser.add_argument("--beams", nargs="+", type=int, default=[3, 5, 8, 16], metavar="N", help="(3 5 8 16)")
    weights = [0.5, 1.0, 4.0, 8.0, 1e6, SIMILARITY_WEIGHT]
    parser.add_argument("--weights", nargs="+", type=float, default=weights, metavar="W", help="(%(default)s)")
    parser.add_argument("--limit", type=int, metavar="N", help="use only the first N images")
    return parser.parse_args()


def candidates(captioner: Any, processor: Any, rows: Any, beams: int) -> list[list[CaptionedImage]]:
    """Returns the beams of each image, with their scores."""
    asked = {"num_beams": beams, "num_return_sequences": beams, "return_scores": True}
    by_image: list[list] = [[] for _ in range(len(rows))]
    for caption in caption_images(captioner, processor, rows, map(str, range(len(rows))), batch_size=50, **asked):
        by_image[int(caption.name)].append(caption)
    return by_image


def cider_d(by_image: list[list[CaptionedImage]], similarities: list, weight: float, references: list) -> np.ndarray:
    """Returns the CIDEr-D of each image's best caption."""
    chosen = []
    for captions, similarity in zip(by_image, similarities, strict=True):
        totals = np.array([caption.score for caption in captions]) + weight * similarity
        chosen.append(captions[int(totals.argmax())].caption)
    scores = CiderD().compute(predictions=chosen, references=references, per_image=True)
    return np.array(scores["per_image"]["cider_d"])


def main() -> None:
    options = parse_arguments()
    rows = load_rows(f"images:{options.images}", "validation", limit=options.limit)
    references = list(rows["captions"])
    rows = rows.select_columns("image")
    captioner, processor = load_captioner(options.captioner)
    reranker = Reranker(*load_model(options.dual_encoder, "retrieval"))
    header = ["beams", "first beam", *(f"{weight:g}" for weight in options.weights), "difference", "95% interval"]
    print(f"| {' | '.join(header)} |\n|{' --- |' * len(header)}")
    for beams in options.beams:
        by_image = candidates(captioner, processor, rows, beams)
        similarities = [
            reranker.similarities(row, [caption.caption for caption in captions])
            for captions, row in zip(by_image, rows, strict=True)
        ]
        first, *others = (cider_d(by_image, similarities, weight, references) for weight in [0.0, *options.weights])
        low, high = compare(others[-1] - first).interval
        cells = [str(beams), *(f"{values.mean():.4f}" for values in [first, *others])]
        cells += [f"{(others[-1] - first).mean():+.4f}", f"{low:+.4f} to {high:+.4f}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
