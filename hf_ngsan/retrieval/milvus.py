"""Search in a Milvus collection, on a server or cluster, or in a file with Milvus Lite.

Each state of an index has its collection, named by its checksum; the key of a row is the place of the embedding. A
killed command therefore sends a row at most twice, and a search finds the rows of its index or fails. An index that has
grown gets a new collection; after it has replaced the earlier index, the earlier collection is dropped.
"""

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..io.folders import write_folder_atomically
from ..io.messages import ProgressDisplay
from .index_folder import IndexFolder, IndexFolderError

SECONDS_TO_CONNECT = 10.0
SECONDS_TO_ANSWER = 600.0
SECONDS_BETWEEN_LOOKS = 1.0
ROWS_AT_ONCE = 1000
MAX_ROWS_OF_AN_ANSWER = 16_384  # limit of Milvus
MAX_TEXT_BYTES = 65_535
CANDIDATES, CANDIDATES_A_HIT = 128, 10
"""Rows that are scored exactly by [`IndexFolder.best`]: at least 128, and at least 10 for each requested hit."""
MAKE = "run the same hf-ngsan index again, which makes it"
TOKEN = "MILVUS_TOKEN"
"""Environment variable: the token, or `user:password`, for a server that requires one."""
SCORE = "IP"  # inner product
LOGGERS = ("milvus_lite", "pymilvus", "pymilvus.milvus_client", "grpc._server")
"""Loggers of the client and of Milvus Lite's server; they log tracebacks of errors that the client also raises."""
FOLDER, CONTENT = "milvus", "content.json"
CELLS_TO_SEARCH = 32  # cells searched in an IVF index (nprobe)


class MilvusSearch:
    """Searches a collection with the embeddings of an index, on a server or in a `.db` file."""

    def __init__(self, index: IndexFolder, uri: str) -> None:
        self.index, self.collection = index, collection_of(index)
        self.uri = uri if is_server(uri) else os.path.abspath(uri)
        try:
            from pymilvus import MilvusClient
        except ImportError:
            needed = 'Searching with Milvus needs its client; install it with pip install "hf-ngsan[milvus]".'
            raise IndexFolderError(needed) from None
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with self.asking("start it, or correct the URI"):
            self.client: Any = MilvusClient(self.uri, token=os.environ.get(TOKEN, ""), timeout=SECONDS_TO_CONNECT)

    @contextmanager
    def asking(self, remedy: str) -> Iterator[None]:
        """Turns any error of the server or its client inside the `with` block into an IndexFolderError."""
        try:
            yield
        except Exception as error:  # errors of the client and of gRPC, and unexpected answers
            reason = " ".join(str(getattr(error, "message", error)).split()).partition(". ")[0].rstrip(".")
            raise IndexFolderError(f"Milvus at {self.uri} failed ({reason[:300]}); {remedy}.") from error

    def add(self, earlier: IndexFolder | None = None) -> None:
        """Sends the missing rows to the collection, waits for its index, and checks the number of rows."""
        if not self.client.has_collection(self.collection, timeout=SECONDS_TO_ANSWER):
            self.make_collection()
        if not self.client.list_indexes(self.collection):
            index_params = self.client.prepare_index_params()
            index_params.add_index("embedding", index_type="AUTOINDEX", metric_type=SCORE)
            self.client.create_index(self.collection, index_params, timeout=SECONDS_TO_ANSWER)
        self.client.load_collection(self.collection, timeout=SECONDS_TO_ANSWER)
        superseded = read_superseded(self.index)
        if earlier is not None:
            superseded += read_superseded(earlier)
            superseded += [] if earlier.missing_shards() else [collection_of(earlier)]
        write_superseded(self.index, [name for name in superseded if name != self.collection])
        with ProgressDisplay("sending to Milvus", self.index.description.num_items) as display:
            for number in range(self.index.num_shards):
                self.send(number)
                display.update(self.index.shard_items(number).stop)
        self.client.flush(self.collection, timeout=SECONDS_TO_ANSWER)
        [name] = self.client.list_indexes(self.collection)
        while self.client.describe_index(self.collection, name, timeout=SECONDS_TO_ANSWER)["pending_index_rows"]:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        self.check_number()

    def drop_earlier(self) -> None:
        """Drops the collections of earlier states of the index after it has replaced them."""
        superseded = read_superseded(self.index)
        for name in superseded:
            self.client.drop_collection(name, timeout=SECONDS_TO_ANSWER)
        if superseded:
            write_superseded(self.index, [])

    def make_collection(self) -> None:
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=True)
        schema.add_field("key", DataType.INT64, is_primary=True)
        schema.add_field("name", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
        schema.add_field("captions", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
        schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=self.index.description.dimension)
        self.client.create_collection(self.collection, schema=schema, timeout=SECONDS_TO_ANSWER)

    def send(self, number: int) -> None:
        """Sends the rows of a shard unless the collection has all of them."""
        places, rows = self.index.places(number), []
        if not len(places) or self.count(f"key >= {places[0]} and key <= {places[-1]}") == len(places):
            return
        listed = self.index.items_at(places), self.index.embeddings_at(places), places.tolist()
        for (name, captions, columns), embedding, place in zip(*listed, strict=True):
            texts = {"name": name, "captions": "\n".join(captions)}
            texts = {
                key: text.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore")
                for key, text in texts.items()
            }
            rows.append({**columns, **texts, "embedding": embedding, "key": place})
        for start in range(0, len(rows), ROWS_AT_ONCE):
            self.client.upsert(self.collection, rows[start : start + ROWS_AT_ONCE], timeout=SECONDS_TO_ANSWER)
        self.index.opened.pop(number)  # so that the names of millions of images do not stay in memory

    def check_number(self) -> None:
        """Raises an IndexFolderError unless all rows of the index are in the collection."""
        held, expected = 0, len(self.index.all_places())
        if self.client.has_collection(self.collection, timeout=SECONDS_TO_ANSWER):
            self.client.load_collection(self.collection, timeout=SECONDS_TO_ANSWER)
            held = self.count()
        if held != expected:
            raise IndexFolderError(
                f"Milvus at {self.uri} lacks embeddings of {self.index.folder} ({held} of {expected}); run the "
                "same hf-ngsan index command again to send the others."
            )

    def count(self, filter: str = "") -> int:
        """Returns the number of rows in the collection that match an expression."""
        options = {"consistency_level": "Strong", "timeout": SECONDS_TO_ANSWER}
        [counted] = self.client.query(self.collection, filter=filter, output_fields=["count(*)"], **options)
        return int(counted["count(*)"])

    @cached_property
    def index_type(self) -> str:
        """The type of the Milvus index; raises an IndexFolderError unless the collection has all rows."""
        self.check_number()
        [name] = self.client.list_indexes(self.collection)
        return self.client.describe_index(self.collection, name, timeout=SECONDS_TO_ANSWER)["index_type"]

    def nearest(self, queries: np.ndarray, top_k: int, filter: str = "") -> list[tuple[np.ndarray, np.ndarray]]:
        number = len(self.index.all_places())
        if not number:
            return [(np.empty(0, np.float32), np.empty(0, np.int64))] * len(queries)
        kind = self.index_type
        most, num_hits = min(number, MAX_ROWS_OF_AN_ANSWER), min(top_k, number)
        if num_hits > most:
            raise IndexFolderError(f"Milvus returns at most {most} rows, not {top_k}; request fewer.")
        limit = min(max(CANDIDATES, CANDIDATES_A_HIT * top_k), most)
        params = {"nprobe": CELLS_TO_SEARCH} if kind.startswith("IVF") else {}
        if kind.startswith("HNSW") or (kind == "AUTOINDEX" and not is_server(self.uri)):
            params = {"ef": limit}  # as many candidates as results; the default of Milvus Lite is 64
        request: dict[str, Any] = {"filter": filter, "consistency_level": "Strong", "timeout": SECONDS_TO_ANSWER}
        with self.asking("correct the filter" if filter else MAKE):
            ranked = {"search_params": {"metric_type": SCORE, "params": params}, "limit": limit}
            answers = self.client.search(self.collection, data=list(queries), **ranked, **request)
            keys = [[hit["key"] for hit in answer] for answer in answers]
            if any(len(hit_keys) < num_hits for hit_keys in keys):  # a graph or cells may not reach all matching rows
                rows = self.client.query(self.collection, output_fields=["key"], limit=most, **request)
                keys = [[*{*hit_keys, *(row["key"] for row in rows)}] for hit_keys in keys]
        return [
            self.index.best(np.array(hit_keys, np.int64), query, top_k)
            for hit_keys, query in zip(keys, queries, strict=True)
        ]


def is_server(uri: str) -> bool:
    return "://" in uri


def collection_of(index: IndexFolder) -> str:
    return f"hf_ngsan_index_{index.checksum()[:32]}"


def read_superseded(index: IndexFolder) -> list[str]:
    """Returns the names of the collections that an index replaces."""
    file = index.folder / FOLDER / CONTENT
    return json.loads(file.read_bytes())["superseded"] if file.is_file() else []


def write_superseded(index: IndexFolder, superseded: list[str]) -> None:
    def write(folder: Path) -> None:
        (folder / CONTENT).write_text(json.dumps({"superseded": superseded}), encoding="utf-8")

    write_folder_atomically(index.folder / FOLDER, write)
