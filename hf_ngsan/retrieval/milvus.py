"""Search in a collection of Milvus, on a server or cluster, or in a file with Milvus Lite.

A collection has the rows of one index, and while the index grows those of its next state too. The key of a row is a
checksum of all that the row holds: unchanged rows are sent once, changed ones get new keys, and nothing is overwritten.
The checksum of an index becomes an alias of the collection once all its rows are there, and ceases to be one before any
of them is deleted. A search goes by this alias, so it finds the rows of its own index or fails.
"""

import hashlib
import json
import logging
import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..io.folders import write_folder_atomically
from ..io.progress_display import ProgressDisplay
from .index_folder import MAKE, IndexFolder, IndexFolderError
from .local import CANDIDATES, CANDIDATES_A_HIT, ExactSearch

SECONDS_TO_CONNECT = 10.0
SECONDS_TO_ANSWER = 600.0
SECONDS_BETWEEN_LOOKS = 1.0
ROWS_AT_ONCE = 1000
MAX_ROWS_OF_AN_ANSWER = 16_384
"""Milvus's own limit."""
MAX_TEXT_BYTES = 65_535
TOKEN = "MILVUS_TOKEN"
"""Environment variable: the token, or `user:password`, for a server that requires one."""
SCORE = "IP"  # inner product
LOGGERS = ("milvus_lite", "pymilvus", "pymilvus.milvus_client")
"""Loggers of the client and of Milvus Lite. They log errors with tracebacks that they also raise."""
FOLDER, KEYS, PLACES, CONTENT = "milvus", "keys.npy", "places.npy", "content.json"
KEY_LENGTH = 32
KEY = f"S{KEY_LENGTH}"
INDEX_TYPES: dict[str, tuple[str, ...]] = {
    "AUTOINDEX": (),
    "FLAT": (),
    "HNSW": ("M", "efConstruction"),
    "HNSW_SQ": ("M", "efConstruction"),
    "IVF_FLAT": ("nlist",),
    "IVF_SQ8": ("nlist",),
}
"""Kinds of Milvus's index and their parameters."""
SERVER_INDEX_TYPES: dict[str, tuple[str, ...]] = {"DISKANN": (), "IVF_RABITQ": ("nlist",), "SCANN": ("nlist",)}
"""Kinds that Milvus Lite does not have."""
CELLS_TO_SEARCH = 32
"""Cells of an IVF index that a search reads (nprobe)."""


class IndexKind(NamedTuple):
    """Kind and parameters of Milvus's index, such as `IndexKind("HNSW", {"M": 32, "efConstruction": 200})`."""

    index_type: str = "AUTOINDEX"
    params: Mapping[str, int] = {}

    def check(self, uri: str) -> None:
        """Raises an IndexFolderError for a kind or parameter that Milvus at a URI does not have."""
        known = {**INDEX_TYPES, **(SERVER_INDEX_TYPES if is_server(uri) else {})}
        if self.index_type not in known:
            raise IndexFolderError(f"Unknown index type {self.index_type!r:.80}; known: {', '.join(sorted(known))}.")
        for name in self.params:
            if name not in known[self.index_type]:
                names = " and ".join(known[self.index_type]) or "none"
                raise IndexFolderError(f"Unknown index parameter {name!r:.80}; {self.index_type} has {names}.")


class MilvusSearch(ExactSearch):
    """Searches a collection with the embeddings of an index.

    Args:
        index: a complete index.
        uri: `http://HOST:19530` of a server, or a file ending in `.db`.
        kind: kind of Milvus's index; None keeps that of the collection.

    Raises:
        IndexFolderError: the client is not installed, or the server or file does not exist.
    """

    def __init__(self, index: IndexFolder, uri: str, kind: IndexKind | None = None) -> None:
        if not is_server(uri):
            uri = os.path.abspath(uri)
            logging.getLogger("grpc._server").addFilter(is_worth_logging)
        super().__init__(index)
        self.uri, self.kind = uri, kind
        try:
            from pymilvus import MilvusClient
        except ImportError:
            raise IndexFolderError(
                'Searching with Milvus needs its client; install it with pip install "hf-ngsan[milvus]".'
            ) from None
        for name in LOGGERS:
            logging.getLogger(name).setLevel(logging.CRITICAL)
        with self.asking("start it, or correct the URI"):
            self.client: Any = MilvusClient(uri, token=os.environ.get(TOKEN, ""), timeout=SECONDS_TO_CONNECT)
        self.alias = alias_of(index)
        self.superseded: np.ndarray = np.empty(0)

    @contextmanager
    def asking(self, remedy: str) -> Iterator[None]:
        """Turns any error of the server or its client inside the `with` block into an IndexFolderError."""
        try:
            yield
        except Exception as error:  # errors of the client, of gRPC, and of unexpected answers
            reason = " ".join(str(getattr(error, "message", error)).split()).partition(". ")[0].rstrip(".")
            raise IndexFolderError(f"Milvus at {self.uri} failed ({reason[:300]}); {remedy}.") from error

    def add(self, earlier: IndexFolder | None = None) -> None:
        """Sends the rows that the collection lacks, waits for its index, and compares the number of rows."""
        of_shards = [self.keys(number) for number in range(self.index.num_shards)]
        keys = np.concatenate(of_shards)
        known = np.unique(keys)
        states = [self.index] if earlier is None or earlier.missing_shards() else [self.index, earlier]
        state = next((index for index in states if self.has(alias_of(index))), None)
        collection = self.new_collection() if state is None else self.collection_of(alias_of(state))
        self.set_kind(collection, states)
        self.client.load_collection(collection, timeout=SECONDS_TO_ANSWER)
        write_folder_atomically(self.index.folder / FOLDER, lambda folder: self.write_listing(folder, keys))
        present = known[:0] if state is None else known if state is self.index else keys_of(state)
        if self.count(collection) != len(present):  # an earlier command was killed
            present = self.present_keys(collection)
        with ProgressDisplay("sending to Milvus", self.index.description.num_items) as display:
            for number, of_shard in enumerate(of_shards):
                self.send(collection, number, ~np.isin(of_shard, present))
                display.update(self.index.shard_items(number).stop)
        self.client.flush(collection, timeout=SECONDS_TO_ANSWER)
        [name] = self.client.list_indexes(collection)
        while self.client.describe_index(collection, name, timeout=SECONDS_TO_ANSWER)["pending_index_rows"]:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        held, expected = self.count(collection), len(np.union1d(known, present))
        if held != expected:
            raise IndexFolderError(
                f"Milvus at {self.uri} has {held} rows where {expected} were sent; run the same hf-ngsan index again, "
                "which sends the others."
            )
        if state is not self.index:
            self.client.create_alias(collection, self.alias, timeout=SECONDS_TO_ANSWER)
        self.superseded = np.setdiff1d(present, known)

    def drop_earlier(self) -> None:
        """Deletes the rows of earlier states of the index, once it has taken their place."""
        collection = self.collection_of(self.alias)
        for alias in self.aliases(collection):
            if alias != self.alias:
                self.client.drop_alias(alias, timeout=SECONDS_TO_ANSWER)
        for start in range(0, len(self.superseded), ROWS_AT_ONCE):
            keys = self.superseded[start : start + ROWS_AT_ONCE].astype(str).tolist()
            self.client.delete(collection, ids=keys, timeout=SECONDS_TO_ANSWER)
        if len(self.superseded):
            self.client.flush(collection, timeout=SECONDS_TO_ANSWER)

    def has(self, name: str) -> bool:
        """Returns whether Milvus has a collection or alias."""
        return self.client.has_collection(name, timeout=SECONDS_TO_ANSWER)

    def aliases(self, collection: str) -> list[str]:
        return self.client.list_aliases(collection, timeout=SECONDS_TO_ANSWER)["aliases"]

    def collection_of(self, alias: str) -> str:
        return self.client.describe_alias(alias, timeout=SECONDS_TO_ANSWER)["collection_name"]

    def new_collection(self) -> str:
        """Returns a collection that is empty, or that a killed command has begun to fill with this index."""
        from pymilvus import DataType, MilvusClient

        name = f"{self.alias}_rows"
        while self.has(name) and self.aliases(name):
            name += "_"  # a copy of this index has grown there
        if not self.has(name):
            schema = MilvusClient.create_schema(auto_id=False, enable_dynamic_field=True)
            schema.add_field("key", DataType.VARCHAR, max_length=KEY_LENGTH, is_primary=True)
            schema.add_field("name", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
            schema.add_field("captions", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
            schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=self.index.description.dimension)
            self.client.create_collection(name, schema=schema, timeout=SECONDS_TO_ANSWER)
        return name

    def set_kind(self, collection: str, states: Sequence[IndexFolder]) -> None:
        """Gives a collection an index of the wanted kind, or else of the one it had, unless it has it."""
        remembered = None
        for state in states:
            with suppress(IndexFolderError):
                remembered = remembered or read_listing(state)[2]
        made = self.client.list_indexes(collection)
        if self.kind is None:
            self.kind = remembered or (None if made else IndexKind())
        if self.kind is None or (made and self.kind == remembered):
            return
        if made:
            self.client.release_collection(collection, timeout=SECONDS_TO_ANSWER)
            self.client.drop_index(collection, made[0], timeout=SECONDS_TO_ANSWER)
        params = {"params": dict(self.kind.params)}  # Milvus Lite 3.2 ignores them at the upper level
        index_params = self.client.prepare_index_params()
        index_params.add_index("embedding", index_type=self.kind.index_type, metric_type=SCORE, params=params)
        self.client.create_index(collection, index_params, timeout=SECONDS_TO_ANSWER)

    def rows(self, number: int) -> list[dict[str, Any]]:
        """Returns the rows of a shard."""
        shard = self.index.shard(number)
        self.index.opened.pop(number)  # names of millions of images need not stay in memory
        captions, columns = shard.items.captions, shard.items.columns
        found = []
        for row, name in enumerate(shard.items.names):
            texts = {"name": name, "captions": "\n".join(captions[row] if captions else ())}
            content = {**(columns[row] if columns else {}), **{key: cut(text) for key, text in texts.items()}}
            embedding = shard.embeddings[row]
            key = hashlib.sha256(json.dumps(content, sort_keys=True).encode() + embedding.tobytes())
            found.append({**content, "embedding": embedding.astype(np.float32), "key": key.hexdigest()[:KEY_LENGTH]})
        return found

    def keys(self, number: int) -> np.ndarray:
        return np.array([row["key"] for row in self.rows(number)], KEY)

    def write_listing(self, folder: Path, keys: np.ndarray) -> None:
        """Writes the keys of all rows, sorted, their places in the index, and the kind of Milvus's index."""
        order = np.argsort(keys, kind="stable")
        np.save(folder / KEYS, keys[order])
        np.save(folder / PLACES, self.index.all_places()[order])
        content = {"checksum": self.index.checksum(), "kind": self.kind}
        (folder / CONTENT).write_text(json.dumps(content), encoding="utf-8")

    def send(self, collection: str, number: int, missing: np.ndarray) -> None:
        """Sends the missing rows of a shard."""
        if not missing.any():
            return
        rows = [row for row, is_missing in zip(self.rows(number), missing, strict=True) if is_missing]
        for start in range(0, len(rows), ROWS_AT_ONCE):
            self.client.upsert(collection, rows[start : start + ROWS_AT_ONCE], timeout=SECONDS_TO_ANSWER)

    def count(self, collection: str) -> int:
        """Returns the number of rows in a collection."""
        [found] = self.client.query(
            collection, output_fields=["count(*)"], consistency_level="Strong", timeout=SECONDS_TO_ANSWER
        )
        return int(found["count(*)"])

    def present_keys(self, collection: str) -> np.ndarray:
        """Returns the keys of all rows in a collection, sorted."""
        found: list[str] = []
        pages = self.client.query_iterator(
            collection,
            batch_size=MAX_ROWS_OF_AN_ANSWER,
            output_fields=["key"],
            consistency_level="Strong",
            timeout=SECONDS_TO_ANSWER,
        )
        while page := pages.next():
            found += [row["key"] for row in page]
        pages.close()
        return np.unique(np.array(found, KEY))

    @cached_property
    def searched(self) -> tuple[np.ndarray, np.ndarray, int, str]:
        """The keys of the index's rows, sorted, and their places; rows of the collection; kind of Milvus's index.

        Reading it raises an IndexFolderError unless all rows of the index are in the collection.
        """
        keys, places, _ = read_listing(self.index)
        known = len(np.unique(keys))
        held = 0
        if self.has(self.alias):
            self.client.load_collection(self.alias, timeout=SECONDS_TO_ANSWER)
            held = self.count(self.alias)
        if held < known:
            raise IndexFolderError(
                f"Milvus at {self.uri} has not all embeddings of {self.index.folder} ({held} of {known}); run the same "
                "hf-ngsan index again, which sends the others."
            )
        kind = "AUTOINDEX"
        for name in self.client.list_indexes(self.alias) if held else ():
            kind = self.client.describe_index(self.alias, name, timeout=SECONDS_TO_ANSWER)["index_type"]
        return keys, places, held, kind

    def nearest(self, queries: np.ndarray, top_k: int, filter: str = "") -> list[tuple[np.ndarray, np.ndarray]]:
        """Returns scores and places for each query; see [`ExactSearch`]."""
        keys, places, held, kind = self.searched
        most, wanted = min(held, MAX_ROWS_OF_AN_ANSWER), min(top_k, len(keys))
        limit = min(max(CANDIDATES, CANDIDATES_A_HIT * top_k), most)
        while limit:
            params = {"nprobe": CELLS_TO_SEARCH} if kind.startswith("IVF") else {}
            if kind.startswith("HNSW") or (kind == "AUTOINDEX" and not is_server(self.uri)):
                params = {"ef": limit}  # as many candidates as answers; Milvus Lite would take 64
            with self.asking("correct the filter" if filter else MAKE):
                answers = self.client.search(
                    self.alias,
                    data=list(queries),
                    filter=filter,
                    limit=limit,
                    search_params={"metric_type": SCORE, "params": params},
                    consistency_level="Strong",
                    timeout=SECONDS_TO_ANSWER,
                )
            found = [places_of([hit["key"] for hit in answer], keys, places) for answer in answers]
            if any(len(own) < wanted and len(answer) < limit for own, answer in zip(found, answers, strict=True)):
                matching = self.matching(filter, most, keys, places)
                found = [np.union1d(own, matching) for own in found]
            is_enough = [len(own) >= wanted or len(answer) < limit for own, answer in zip(found, answers, strict=True)]
            if all(is_enough) or limit == held:
                return [self.index.best(own, query, top_k) for own, query in zip(found, queries, strict=True)]
            if limit == most:
                raise IndexFolderError(
                    f"Milvus answers {most} rows at most, and those are not {top_k} of {self.index.folder}; ask for "
                    "fewer, or run the same hf-ngsan index again, which deletes the rows of images that are gone."
                )
            limit = min(2 * limit, most)  # rows of another state of the index were among the answers
        return [(np.empty(0, np.float32), places)] * len(queries)

    def matching(self, filter: str, most: int, keys: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Returns the places of the rows that a filter lets through, `most` at most: no graph need reach them all."""
        rows = self.client.query(
            self.alias,
            filter=filter,
            output_fields=["key"],
            limit=most,
            consistency_level="Strong",
            timeout=SECONDS_TO_ANSWER,
        )
        return places_of([row["key"] for row in rows], keys, places)


def is_server(uri: str) -> bool:
    return "://" in uri


def alias_of(index: IndexFolder) -> str:
    return f"hf_ngsan_index_{index.checksum()[:32]}"


def cut(text: str) -> str:
    return text.encode(errors="replace")[:MAX_TEXT_BYTES].decode(errors="ignore")


def read_listing(index: IndexFolder) -> tuple[np.ndarray, np.ndarray, IndexKind | None]:
    """Returns the keys of an index's rows in Milvus, sorted, their places, and the kind of Milvus's index, if known.

    Raises:
        IndexFolderError: the list is missing, or of other embeddings.
    """
    folder = index.backend_folder(FOLDER)
    content = json.loads((folder / CONTENT).read_bytes())
    if content["checksum"] != index.checksum():
        raise IndexFolderError(f"{folder} is of other embeddings; {MAKE} anew.")
    kind = content["kind"]
    return np.load(folder / KEYS), np.load(folder / PLACES), None if kind is None else IndexKind(*kind)


def keys_of(index: IndexFolder) -> np.ndarray:
    """Returns the keys of an index's rows; none if they are not known."""
    with suppress(IndexFolderError):
        return np.unique(read_listing(index)[0])
    return np.empty(0, KEY)


def places_of(found: Sequence[str], keys: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Returns the places of rows, several for equal rows and none for those of other indexes."""
    first = np.searchsorted(keys, np.array(found, keys.dtype), "left")
    last = np.searchsorted(keys, np.array(found, keys.dtype), "right")
    return np.concatenate([places[:0], *(places[start:stop] for start, stop in zip(first, last, strict=True))])


def is_worth_logging(record: logging.LogRecord) -> bool:
    """Returns False for errors of the local server of Milvus Lite, which the client reports or survives."""
    if record.exc_info is None or record.exc_info[1] is None:
        return True
    modules = (str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_tb(record.exc_info[2]))
    is_of_milvus = any(module.startswith("milvus_lite") for module in modules)
    return not (is_of_milvus or isinstance(record.exc_info[1], NotImplementedError))
