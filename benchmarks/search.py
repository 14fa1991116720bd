"""Speed, recall and memory of search, and speed of the evaluation of retrieval, for existing embeddings.

    python benchmarks/search.py --threads 2                                # exact, 100,000 x 1024; evaluation
    python benchmarks/search.py --threads 1 --vectors 10000 --dimension 256 --backends exact milvus --pairs 0

Search: one query at a time in an index of memory-mapped float16 embeddings, each backend in a separate process; the
hits of each are compared with the exact ones. `milvus` is Milvus Lite in a temporary file. Evaluation: similarities of
5,000 images and 25,000 captions, and the ranks of all right answers. Embeddings are clusters of unit vectors with
noise, similar to those of a model. With `--like INDEX`, they are those of the index, repeated with noise and, if
necessary, projected randomly to the dimension. Queries are generated in the same way.
"""

import argparse
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import torch

from hf_ngsan.retrieval import IndexDescription, IndexFolder, open_backend
from hf_ngsan.tasks import PairEmbeddings
from hf_ngsan.tasks.retrieval_indexing import MAX_IMAGES_PER_SHARD

MOST_SECONDS_A_QUERY = 0.05
MOST_SECONDS_OF_EVALUATION = 3
LEAST_RECALL = 0.95
"""Minimum recall@10 of the exact hits by approximate search."""
TOP_K = 10
CENTRES = 1000
NOISE = 0.5
"""Length of the noise relative to vectors of length 1."""


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", type=int, nargs="+", default=[100_000], metavar="N", help="(100000)")
    parser.add_argument("--dimension", type=int, default=1024, metavar="D", help="(%(default)s)")
    parser.add_argument("--like", type=Path, metavar="INDEX", help="folder of an index whose embeddings are repeated")
    parser.add_argument("--noise", type=float, default=NOISE, metavar="X", help="its length (%(default)s)")
    parser.add_argument("--backends", nargs="+", default=["exact"], metavar="BACKEND", help="the first one is exact")
    parser.add_argument("--queries", type=int, default=100, metavar="N", help="(%(default)s)")
    parser.add_argument("--pairs", type=int, default=5000, metavar="N", help="images of the evaluation (%(default)s)")
    parser.add_argument("--threads", type=int, default=2, metavar="N", help="(%(default)s)")
    parser.add_argument("--repeats", type=int, default=5, metavar="N", help="repeats of the evaluation (%(default)s)")
    return parser.parse_args()


def centres(options: argparse.Namespace, random: np.random.Generator) -> np.ndarray:
    """Returns unit vectors as cluster centres: those of an index, or random ones."""
    if options.like is None:
        vectors = random.standard_normal((CENTRES, options.dimension), dtype=np.float32)
    else:
        vectors = np.concatenate(IndexFolder.open(options.like).embeddings()).astype(np.float32)
        if vectors.shape[1] != options.dimension:
            vectors = vectors @ random.standard_normal((vectors.shape[1], options.dimension), dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def around(centres: np.ndarray, number: int, noise: float, random: np.random.Generator) -> np.ndarray:
    """Returns unit vectors: centres with noise."""
    vectors = centres[random.integers(0, len(centres), number)]
    vectors += noise * vectors.shape[1] ** -0.5 * random.standard_normal(vectors.shape, dtype=np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def write_index(
    folder: Path, vectors: int, options: argparse.Namespace, around_what: np.ndarray, random: np.random.Generator
) -> None:
    description = IndexDescription("no/model", "", "made", "", options.dimension, vectors, MAX_IMAGES_PER_SHARD)
    index = IndexFolder.begin(folder, description)
    for number in range(index.num_shards):
        items = index.shard_items(number)
        index.write_shard(number, list(map(str, items)), around(around_what, len(items), options.noise, random))


def measure(folder: Path, spec: str, queries: np.ndarray, threads: int) -> dict:
    """Returns seconds, hits and memory of one backend; each process measures only one backend."""
    torch.set_num_threads(threads)
    backend = open_backend(IndexFolder.open(folder), spec)
    begin = time.perf_counter()
    backend.add()
    seconds_to_build = time.perf_counter() - begin
    backend = open_backend(IndexFolder.open(folder), spec)
    backend.nearest(queries[:1], TOP_K)  # opens files
    for query in queries:  # reads what is on the disk
        backend.nearest(query[None], TOP_K)
    seconds, hits = [], []
    for query in queries:
        begin = time.perf_counter()
        [(_, places)] = backend.nearest(query[None], TOP_K)
        seconds.append(time.perf_counter() - begin)
        hits.append(set(places.tolist()))
    memory = psutil.Process().memory_info()
    return {
        "build": seconds_to_build,
        "seconds": seconds,
        "hits": hits,
        "own": (memory.rss - memory.shared) / 2**20,
        "mapped": memory.shared / 2**20,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
    }


def in_a_process(function: Callable, *arguments: object) -> dict:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def milliseconds(seconds: list[float]) -> str:
    values = 1000 * np.array(seconds)
    return f"{statistics.median(values):9.2f} ms per query  ({values.min():.2f} to {values.max():.2f})"


def search(vectors: int, options: argparse.Namespace) -> None:
    random = np.random.default_rng(0)
    around_what = centres(options, random)
    print(f"{vectors} x {options.dimension}, {options.threads} threads, {options.queries} queries")
    with tempfile.TemporaryDirectory() as folder:
        write_index(Path(folder, "index"), vectors, options, around_what, random)
        queries = around(around_what, options.queries, options.noise, random)
        exact = None
        for spec in options.backends:
            place = f"milvus:{folder}/milvus.db" if spec == "milvus" else spec
            result = in_a_process(measure, Path(folder, "index"), place, queries, options.threads)
            exact = exact or result
            print(f"{spec:<12}{milliseconds(result['seconds'])}", end="")
            limit = f"   required for 100000 x 1024: at most {1000 * MOST_SECONDS_A_QUERY:.0f}"
            print(limit if exact is result else "")
            print(
                f"{'':<12}{result['own']:9.0f} MiB private, {result['mapped']:.0f} MiB of mapped files and libraries; "
                f"{result['peak']:.0f} MiB at most"
            )
            if exact is not result:
                hits = [len(actual & expected) for actual, expected in zip(result["hits"], exact["hits"], strict=True)]
                print(f"{'':<12}{result['build']:9.0f} s to build, {vectors / result['build']:.0f} vectors per second")
                print(
                    f"{'':<12}{sum(hits) / TOP_K / len(hits):9.3f} recall@{TOP_K} of {options.backends[0]}   "
                    f"required: at least {LEAST_RECALL}"
                )


def evaluation(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    random = np.random.default_rng(0)
    images = around(centres(options, random), options.pairs, options.noise, random)
    captions = np.repeat(images, 5, axis=0)
    captions += options.noise * options.dimension**-0.5 * random.standard_normal(captions.shape, dtype=np.float32)
    pairs = PairEmbeddings(images, captions, np.repeat(np.arange(options.pairs), 5))
    seconds = []
    for repeat in range(options.repeats + 1):
        begin = time.perf_counter()
        pairs.scores()
        if repeat:  # the first one warms up
            seconds.append(time.perf_counter() - begin)
    print(
        f"{'evaluation':<12}{statistics.median(seconds):9.2f} s   ({min(seconds):.2f} to {max(seconds):.2f})   "
        f"required: at most {MOST_SECONDS_OF_EVALUATION}"
    )


def main() -> None:
    options = parse_arguments()
    for vectors in options.vectors:
        search(vectors, options)
    if options.pairs:
        evaluation(options)


if __name__ == "__main__":
    main()
