"""Search in a collection of Milvus, on a server or cluster, or in a file with Milvus Lite."""

import logging
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ..ground.progress_display import ProgressDisplay
from .index_folder import IndexFolder, IndexFolderError

SECONDS_TO_CONNECT = 10.0
SECONDS_TO_ANSWER = 600.0
ROWS_AT_ONCE = 1000
MAX_NAME_LENGTH = 65_535
TOKEN = "MILVUS_TOKEN"
"""Environment variable: the token, or `user:password`, for a server that requires one."""
SCORE = "IP"  # inner product
LOGGERS = ("milvus_lite", "pymilvus", "pymilvus.milvus_client")
"""Loggers of the client and of Milvus Lite. They log errors with tracebacks that they also raise."""


class MilvusSearch:
    """Searches a collection with the embeddings of an index; the name of the collection has their checksum.

    Args:
        index: a complete index.
        uri: `http://HOST:19530` of a server, or a file ending in `.db`.

    Raises:
        IndexFolderError: the client is not installed, or the server or file does not exist.
    """

    def __init__(self, index: IndexFolder, uri: str) -> None:
        self.remedy = "start it, or correct the URI"
        if "://" not in uri:
            uri = os.path.abspath(uri)
            self.remedy = "if it is damaged, delete it, and run the same hf-ngsan index again, which makes it"
            logging.getLogger("grpc._server").addFilter(is_worth_telling)
        self.index, self.uri = index, uri
        try:
            from pymilvus import MilvusClient
        except ImportError:
            raise IndexFolderError(
                'Searching with Milvus needs its client; install it with pip install "hf-ngsan[milvus]".'
            ) from None
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with self.asking():
            self.client: Any = MilvusClient(uri, token=os.environ.get(TOKEN, ""), timeout=SECONDS_TO_CONNECT)
        self.collection = f"hf_ngsan_{index.checksum()[:32]}"

    @contextmanager
    def asking(self) -> Iterator[None]:
        """Turns any error of the server or its client inside the `with` block into an IndexFolderError."""
        try:
            yield
        except IndexFolderError:
            raise
        except Exception as error:  # errors of the client, of gRPC, and of unexpected answers
            reason = " ".join(str(getattr(error, "message", error)).split()).partition(". ")[0].rstrip(".")
            raise IndexFolderError(f"Milvus at {self.uri} failed ({reason[:300]}); {self.remedy}.") from None

    def add(self) -> None:
        """Adds the missing embeddings to the collection, which may be new or incomplete."""
        with (
            self.asking(),
            ProgressDisplay("sending to Milvus", self.index.description.num_items) as display,
        ):
            if not self.client.has_collection(self.collection, timeout=SECONDS_TO_ANSWER):
                self.make_collection()
            self.client.load_collection(self.collection, timeout=SECONDS_TO_ANSWER)
            for number in range(self.index.num_shards):
                self.send(number)
                display.update(self.index.shard_items(number).stop)
            self.client.flush(self.collection, timeout=SECONDS_TO_ANSWER)

    def make_collection(self) -> None:
        from pymilvus import DataType, MilvusClient

        schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("place", DataType.INT64, is_primary=True)
        schema.add_field("name", DataType.VARCHAR, max_length=MAX_NAME_LENGTH)
        schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=self.index.description.dimension)
        way = self.client.prepare_index_params()
        way.add_index("embedding", index_type="AUTOINDEX", metric_type=SCORE)
        self.client.create_collection(self.collection, schema=schema, index_params=way, timeout=SECONDS_TO_ANSWER)

    def send(self, number: int) -> None:
        """Sends a shard, unless the collection already has it."""
        places = self.index.places(number).tolist()
        if not places or self.count(places[0], places[-1]) == len(places):
            return
        shard = self.index.shard(number)
        rows = [
            {"place": place, "name": name[:MAX_NAME_LENGTH], "embedding": embedding}
            for place, name, embedding in zip(
                places, shard.items.names, shard.embeddings.astype(np.float32), strict=True
            )
        ]
        for start in range(0, len(rows), ROWS_AT_ONCE):
            self.client.upsert(self.collection, rows[start : start + ROWS_AT_ONCE], timeout=SECONDS_TO_ANSWER)

    def count(self, first: int, last: int) -> int:
        """Returns the number of places in the collection from the first to the last one."""
        [found] = self.client.query(
            self.collection,
            filter=f"place >= {first} and place <= {last}",
            output_fields=["count(*)"],
            consistency_level="Strong",
            timeout=SECONDS_TO_ANSWER,
        )
        return int(found["count(*)"])

    def nearest(self, queries: np.ndarray, top_k: int) -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns scores and places for each query; see [`SearchBackend`]."""
        with self.asking():
            if not self.client.has_collection(self.collection, timeout=SECONDS_TO_ANSWER):
                raise IndexFolderError(
                    f"Milvus at {self.uri} has not the embeddings of {self.index.folder}; run the same hf-ngsan index "
                    "again, which sends them."
                )
            self.client.load_collection(self.collection, timeout=SECONDS_TO_ANSWER)
            known = self.index.all_places()
            held = self.count(0, int(known.max(initial=0)))
            if held != len(known):
                raise IndexFolderError(
                    f"Milvus at {self.uri} has {held} of the {len(known)} embeddings of {self.index.folder}; run the "
                    "same hf-ngsan index again, which sends the others."
                )
            answers = self.client.search(
                self.collection,
                data=list(queries),
                limit=min(top_k, self.index.description.num_items),
                search_params={"metric_type": SCORE},
                consistency_level="Strong",
                timeout=SECONDS_TO_ANSWER,
            )
        found = []
        for answer in answers:
            scores = np.array([hit["distance"] for hit in answer], np.float32)
            places = np.array([hit["place"] for hit in answer], np.int64)
            if not np.isin(places, known).all():
                raise IndexFolderError(
                    f"Milvus at {self.uri} has found what is not in {self.index.folder}; {self.remedy}."
                )
            order = np.lexsort((places, -scores))
            found.append((scores[order], places[order]))
        return found


def is_worth_telling(record: logging.LogRecord) -> bool:
    """Returns False for errors of the local server of Milvus Lite, which the client reports or survives."""
    if record.exc_info is None or record.exc_info[1] is None:
        return True
    modules = (str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(record.exc_info[2]))
    is_of_milvus = any(module.startswith("milvus_lite") for module in modules)
    return not (is_of_milvus or isinstance(record.exc_info[1], NotImplementedError))
