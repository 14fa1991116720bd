"""How fast exact search and the evaluation of retrieval are, once embeddings exist.

Search: one query at a time among memory-mapped float16 embeddings. Evaluation: similarities of 5,000 images and 25,000
captions, and the ranks of all right answers. Embeddings are clusters of unit vectors with noise, as of a model.

    python benchmarks/search.py --threads 2 --repeats 5
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from hf_ngsan.retrieval import nearest
from hf_ngsan.tasks import PairEmbeddings

MOST_SECONDS_A_QUERY = 0.05
MOST_SECONDS_OF_EVALUATION = 3


def embeddings(number, dimension, generator):
    """Unit vectors around 1,000 centres, in parts that fit into memory."""
    centres = generator.standard_normal((1000, dimension), dtype=np.float32)
    vectors = centres[generator.integers(0, len(centres), number)]
    vectors += 0.5 * generator.standard_normal(vectors.shape, dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def timed(compute, repeats):
    seconds = []
    for repeat in range(repeats + 1):
        start = time.perf_counter()
        compute()
        if repeat:  # the first one warms up
            seconds.append(time.perf_counter() - start)
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=1024)
    parser.add_argument("--pairs", type=int, default=5000, help="images of the evaluation, of five captions each")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "embeddings.npy")
        vectors = embeddings(args.images, args.dimension, generator)
        np.save(path, vectors.astype(np.float16))
        query = vectors[:1].copy()
        del vectors
        stored = np.load(path, mmap_mode="r")
        seconds = timed(lambda: nearest([stored], query, 10), args.repeats)
    print(f"{args.images} x {args.dimension}, {args.threads} threads")
    print(
        f"{'a query':<12}{1000 * statistics.median(seconds):9.1f} ms  ({1000 * min(seconds):.1f} to "
        f"{1000 * max(seconds):.1f})   required: at most {1000 * MOST_SECONDS_A_QUERY:.0f}"
    )

    images = embeddings(args.pairs, args.dimension, generator)
    captions = np.repeat(images, 5, axis=0) + 0.05 * generator.standard_normal(
        (5 * args.pairs, args.dimension), dtype=np.float32
    )
    pairs = PairEmbeddings(images, captions, np.repeat(np.arange(args.pairs), 5))
    seconds = timed(pairs.scores, args.repeats)
    print(
        f"{'evaluation':<12}{statistics.median(seconds):9.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})   "
        f"required: at most {MOST_SECONDS_OF_EVALUATION}"
    )


if __name__ == "__main__":
    main()
