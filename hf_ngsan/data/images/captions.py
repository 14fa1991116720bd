"""Captions gathered from the columns of a dataset, one list for each image."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def gather_captions(columns: list[pa.ChunkedArray], owners: np.ndarray) -> pa.ListArray:
    """Gathers the captions of each image at one row.

    Args:
        columns: n strings or lists of strings each; null for no caption.
        owners: `(n,)`, the row at which the captions of each row are gathered; -1 leaves them out.

    Returns:
        n lists, empty at rows that own none; captions in the order of rows and, within a row, of columns. Captions
        without a word are left out.
    """
    parts = [part for column in columns for part in texts_of(column)]
    rows = np.concatenate([part_rows for part_rows, _ in parts])
    texts = pa.chunked_array([part_texts for _, part_texts in parts], pa.string())
    wanted = np.asarray(pc.fill_null(pc.not_equal(pc.utf8_trim_whitespace(texts), ""), False)) & (owners[rows] >= 0)
    owner, places = owners[rows[wanted]], np.flatnonzero(wanted)
    places = places[np.lexsort((rows[wanted], owner))]  # a stable sort: the columns of a row stay in order
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner, minlength=len(owners)))])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), texts.take(pa.array(places)).combine_chunks())


def texts_of(column: pa.ChunkedArray) -> Iterator[tuple[np.ndarray, pa.Array]]:
    """Yields row numbers and the strings in these rows, chunk by chunk."""
    first = 0
    for chunk in column.chunks:
        rows, texts = np.arange(len(chunk)), chunk
        if pa.types.is_list(chunk.type) or pa.types.is_large_list(chunk.type):
            rows, texts = np.asarray(pc.list_parent_indices(chunk)), pc.list_flatten(chunk)
        elif pa.types.is_fixed_size_list(chunk.type):
            rows, texts = np.asarray(pc.list_parent_indices(chunk)), chunk.flatten()
        yield first + rows.astype(np.int64), texts.cast(pa.string())
        first += len(chunk)
