"""Whether captions of Flickr8k photographs get better if a dual encoder chooses among the beams.

    python benchmarks/flickr8k_reranking.py --features FEATURES --captioner ngsan-flickr8k --dual-encoder RUN

Prints CIDEr-D on the validation split of the first beam and of the beam that the dual encoder finds most similar to the
image, and their difference with its 95% interval: images are resampled (paired bootstrap).
"""

import argparse
from pathlib import Path

import numpy as np
from training_runs import call

from hf_ngsan.data import load_data
from hf_ngsan.metrics import CiderD
from hf_ngsan.metrics.comparison import compare


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", required=True, metavar="DIR", help="that hf-ngsan extract wrote")
    parser.add_argument("--captioner", default="ngsan-flickr8k", metavar="DIR", help="(%(default)s)")
    parser.add_argument("--dual-encoder", required=True, metavar="DIR", help="a run of flickr8k_retrieval.py")
    parser.add_argument("--beams", nargs="+", type=int, default=[3, 5, 10], metavar="N", help="(3 5 10)")
    parser.add_argument("--output", type=Path, default=Path("runs/flickr8k_reranking"), metavar="DIR")
    parser.add_argument("--limit", type=int, metavar="N", help="take the first N images only")
    return parser.parse_args()


def captions(options: argparse.Namespace, beams: int, more: list) -> dict[int, str]:
    """Returns the caption of each image id."""
    where = ["--model", options.captioner, "--data", f"features:{options.features}", "--split", "validation"]
    limit = [] if options.limit is None else ["--limit", options.limit]
    printed = call(options.output / "captions", "caption", *where, "--num-beams", beams, *limit, *more)
    lines = [line.split("\t") for line in printed.splitlines()]
    return {int(image_id): caption for image_id, caption in lines}


def cider_d(found: dict[int, str], references: dict[int, list[str]]) -> np.ndarray:
    """Returns the CIDEr-D of each image's caption."""
    wanted = [references[image_id] for image_id in found]
    scores = CiderD().compute(predictions=list(found.values()), references=wanted, per_image=True)
    return np.array(scores["per_image"]["cider_d"])


def main() -> None:
    options = parse_arguments()
    rows = load_data(f"features:{options.features}", "validation").select_columns(["image_id", "captions"])
    references = dict(zip(rows["image_id"], rows["captions"], strict=True))
    print("| beams | first beam | chosen by the dual encoder | difference | 95% interval |")
    print("| --- | --- | --- | --- | --- |")
    for beams in options.beams:
        first = cider_d(captions(options, beams, []), references)
        chosen = cider_d(captions(options, beams, ["--rerank-with", options.dual_encoder]), references)
        low, high = compare(chosen - first).interval
        cells = [str(beams), f"{first.mean():.4f}", f"{chosen.mean():.4f}", f"{(chosen - first).mean():+.4f}"]
        print(f"| {' | '.join([*cells, f'{low:+.4f} to {high:+.4f}'])} |", flush=True)


if __name__ == "__main__":
    main()
