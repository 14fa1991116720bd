"""Speed of retrieval ranks by counting, against sorting every row and every column.

Both rank the same similarities (by default 5,000 images x 25,000 captions) in turn; the result is the ratio of each
pair. The loop sorts with numpy's default argsort, the fastest one. This sort is not stable, so equal similarities are
ranked again with a stable sort when the ranks are compared.

    python benchmarks/retrieval_ranks.py --repeats 3
"""

import argparse
import statistics
import time

import numpy as np

from hf_ngsan.metrics.retrieval import retrieval_ranks

REQUIRED_RATIO = 50


def ranks_by_sorting(similarity, caption_images, kind=None, rows=None, columns=None):
    """Computes ranks as in public code: sorts, then searches for the right item."""
    rows = range(similarity.shape[0]) if rows is None else rows
    columns = range(similarity.shape[1]) if columns is None else columns
    image_to_text = np.zeros(len(rows), dtype=np.int64)
    for place, row in enumerate(rows):
        order = np.argsort(-similarity[row], kind=kind)
        image_to_text[place] = 1 + np.flatnonzero(caption_images[order] == row)[0]
    text_to_image = np.zeros(len(columns), dtype=np.int64)
    for place, column in enumerate(columns):
        order = np.argsort(-similarity[:, column], kind=kind)
        text_to_image[place] = 1 + np.flatnonzero(order == caption_images[column])[0]
    return image_to_text, text_to_image


def count_differences(similarity, caption_images, ours, theirs):
    """Counts the ranks that differ after ties are broken in the same way."""
    rows, columns = (np.flatnonzero(a != b) for a, b in zip(ours, theirs, strict=True))
    stable = ranks_by_sorting(similarity, caption_images, "stable", rows, columns)
    return int((ours[0][rows] != stable[0]).sum() + (ours[1][columns] != stable[1]).sum())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--captions-per-image", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    generator = np.random.default_rng(0)
    captions = args.images * args.captions_per_image
    similarity = generator.standard_normal((args.images, captions), dtype=np.float32)
    caption_images = np.repeat(np.arange(args.images), args.captions_per_image)
    similarity[caption_images, np.arange(captions)] += 2

    ours, theirs = [], []
    for _ in range(args.repeats):
        start = time.perf_counter()
        sorted_ranks = ranks_by_sorting(similarity, caption_images)
        theirs.append(time.perf_counter() - start)
        start = time.perf_counter()
        counted_ranks = retrieval_ranks(similarity, caption_images)
        ours.append(time.perf_counter() - start)

    ratios = [a / b for a, b in zip(theirs, ours, strict=True)]
    print(f"{args.images} images x {captions} captions; {args.repeats} repeats")
    for name, times in (("argsort loop", theirs), ("counting", ours)):
        print(f"{name:<14}{statistics.median(times):9.3f} s   ({min(times):.3f} to {max(times):.3f})")
    print(
        f"{'ratio':<14}{statistics.median(ratios):9.1f}     ({min(ratios):.1f} to {max(ratios):.1f})"
        f"   required: at least {REQUIRED_RATIO}"
    )
    differences = count_differences(similarity, caption_images, counted_ranks, sorted_ranks)
    print(f"{'other ranks':<14}{differences:9d}     required: 0")


if __name__ == "__main__":
    main()
