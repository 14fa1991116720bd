"""Time and bytes read until the first hit of a search index, in a separate process.

    python benchmarks/index_opening.py --folder /tmp/index

Creates an index of random embeddings and thumbnails unless it exists. Before the search, its files are evicted from the
operating system's cache, so that `/proc/self/io` counts all bytes from the disk, including memory-mapped files and
read-ahead.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

from hf_ngsan.retrieval import IndexDescription, IndexFolder, search

ITEMS_PER_SHARD = 1000
THUMBNAIL_SIDE = 160


def make_index(folder: Path, num_images: int, dimension: int) -> None:
    """Writes an index; existing shards are kept."""
    description = IndexDescription("none", "random", "nowhere", "random", dimension, num_images, ITEMS_PER_SHARD)
    index = IndexFolder.begin(folder, description)
    file = io.BytesIO()
    noise = np.random.default_rng(0).integers(0, 256, (THUMBNAIL_SIDE // 8, THUMBNAIL_SIDE // 8, 3), np.uint8)
    Image.fromarray(noise).resize((THUMBNAIL_SIDE, THUMBNAIL_SIDE)).save(file, "JPEG", quality=85)
    for number in index.missing_shards():
        items = index.shard_items(number)
        vectors = np.random.default_rng(number).standard_normal((len(items), dimension)).astype(np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        stamps = {item: (6_000, 1_700_000_000_000_000_000 + item, f"{item:064x}") for item in items}
        names = [f"{item:012d}.jpg" for item in items]
        index.write_shard(number, names, vectors, thumbnails=[file.getvalue()] * len(items), stamps=stamps)


def evict(folder: Path) -> None:
    """Evicts the files of a folder from the operating system's cache."""
    os.sync()
    for file in folder.rglob("*"):
        if file.is_file():
            descriptor = os.open(file, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def bytes_read() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(number) for name, number in (line.split(": ") for line in lines)}


def first_hit(folder: Path) -> None:
    """Prints the time and bytes of the first search in this process as JSON."""
    index = IndexFolder.open(folder)
    queries = np.zeros((1, index.description.dimension), np.float32)
    queries[0, 0] = 1.0
    evict(folder)
    before, begin = bytes_read(), time.perf_counter()
    [hits] = search(IndexFolder.open(folder), queries, 5)
    seconds, after = time.perf_counter() - begin, bytes_read()
    report = {"seconds": round(seconds, 2), "from_disk": after["read_bytes"] - before["read_bytes"]}
    print(json.dumps({**report, "by_read": after["rchar"] - before["rchar"], "hits": [hit.name for hit in hits]}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="of the index")
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--dimension", type=int, default=256)
    parser.add_argument("--search", action="store_true", help="search once, in this process")
    options = parser.parse_args()
    if options.search:
        first_hit(options.folder)
        return
    make_index(options.folder, options.images, options.dimension)
    for pattern in ("shard-*/embeddings.npy", "shard-*/items.json", "shard-*/thumbnails.zip"):
        print(f"{pattern:24} {sum(file.stat().st_size for file in options.folder.glob(pattern)) / 1e6:8.1f} MB")
    command = [sys.executable, __file__, "--folder", str(options.folder), "--search"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    amounts = f"{report['from_disk'] / 1e6:.1f} MB from the disk, {report['by_read'] / 1e6:.1f} MB by read()"
    print(f"first hit after {report['seconds']:.2f} s, {amounts}")


if __name__ == "__main__":
    main()
