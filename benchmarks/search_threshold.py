"""The similarity below which no image fits a query, from captions and photographs that they do or do not describe.

    python benchmarks/search_threshold.py --data images:flickr8k

A collection is `--size` photographs of the split, drawn at random for each caption, without the caption's own. The
threshold is where both errors are equally frequent: the best photograph of the collection reaches it, and the caption's
own photograph does not. `hf_ngsan/demo/page.py` has the threshold of the packaged dual encoder.
"""

import argparse

import numpy as np

from hf_ngsan.data import load_data
from hf_ngsan.io.packaged import DUAL_ENCODER
from hf_ngsan.loading.models import load_model
from hf_ngsan.tasks.retrieval_search import embed_images, embed_texts

SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="images:flickr8k", metavar="SPEC", help="captioned photographs (%(default)s)")
    parser.add_argument("--split", default="validation", metavar="SPLIT", help="(%(default)s)")
    parser.add_argument("--model", default=DUAL_ENCODER, metavar="NAME", help="a dual encoder (%(default)s)")
    parser.add_argument("--size", type=int, default=16, metavar="N", help="photographs of a collection (%(default)s)")
    parser.add_argument("--limit", type=int, metavar="N", help="photographs of the split (all)")
    options = parser.parse_args()
    model, processor = load_model(options.model, "retrieval")
    rows = load_data(options.data, options.split)
    rows = rows.select(range(min(len(rows), options.limit or len(rows))))
    parts = [rows.select(range(start, min(start + 16, len(rows)))) for start in range(0, len(rows), 16)]
    images = np.concatenate([embed_images(model, processor, [*part]) for part in parts])
    texts = [
        (number, caption) for number, row in enumerate(rows.select_columns("captions")) for caption in row["captions"]
    ]
    own = np.array([number for number, _ in texts])
    similarities = embed_texts(model, processor, [caption for _, caption in texts]) @ images.T
    matching = similarities[np.arange(len(own)), own]
    random, best = np.random.default_rng(SEED), []
    for of_images, number in zip(similarities, own, strict=True):
        drawn = random.choice(np.delete(np.arange(len(images)), number), options.size, replace=False)
        best.append(of_images[drawn].max())
    found, missed = np.sort(best), np.sort(matching)
    candidates = np.sort(np.concatenate([found, missed]))
    too_many = 1 - np.searchsorted(found, candidates) / len(found)
    too_few = np.searchsorted(missed, candidates) / len(missed)
    place = int(np.argmin(np.abs(too_many - too_few)))
    print(f"{len(images)} photographs, {len(own)} captions, collections of {options.size} without the caption's own")
    print(f"similarity: own photograph {np.mean(matching):.3f}, best of a collection {np.mean(best):.3f} in the mean")
    print(f"threshold {candidates[place]:.3f}: {too_many[place]:.1%} of collections reach it, ", end="")
    print(f"{too_few[place]:.1%} of own photographs do not")


if __name__ == "__main__":
    main()
