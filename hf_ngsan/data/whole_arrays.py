"""Reading lists of vectors as arrays in one step, for whoever reads many rows."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset
from datasets.formatting import NumpyFormatter, _register_formatter
from datasets.formatting.formatting import NumpyArrowExtractor

FORMAT = "hf_ngsan_whole_arrays"


def with_whole_arrays(rows: Any) -> Any:
    """Returns rows that give the same, faster: `datasets`' format "numpy" makes an array of each vector of a list.

    Args:
        rows: a sequence of rows; it is returned as it is unless it is a `Dataset` with the format "numpy". The result
            is to be read, not saved: its format is known to this package alone.
    """
    form = rows.format if isinstance(rows, Dataset) else {"type": None}
    return rows.with_format(**{**form, "type": FORMAT}) if form["type"] == "numpy" else rows


class WholeArrayExtractor(NumpyArrowExtractor):
    def _arrow_array_to_numpy(self, pa_array: pa.Array | pa.ChunkedArray) -> Any:
        chunks = pa_array.chunks if isinstance(pa_array, pa.ChunkedArray) else [pa_array]
        found = [arrays_of(chunk) for chunk in chunks]
        if any(arrays is None for arrays in found):
            return super()._arrow_array_to_numpy(pa_array)
        return [array for arrays in found if arrays is not None for array in arrays]


class WholeArrayFormatter(NumpyFormatter):
    """The format "numpy" of `datasets`, whose lists of vectors become arrays `(N, D)` in one step."""

    numpy_arrow_extractor = WholeArrayExtractor


_register_formatter(WholeArrayFormatter, FORMAT)


def arrays_of(lists: pa.Array) -> list[np.ndarray] | None:
    """Returns lists of vectors of one dimension as arrays `(N, D)`; None for anything else, or where some are null."""
    if not pa.types.is_list(lists.type) or not pa.types.is_fixed_size_list(lists.type.value_type):
        return None
    bounds = lists.offsets.to_numpy()
    vectors = lists.values.slice(bounds[0], bounds[-1] - bounds[0])
    numbers = vectors.flatten()
    if not pa.types.is_floating(numbers.type) or lists.null_count or vectors.null_count or numbers.null_count:
        return None
    table = numbers.to_numpy(zero_copy_only=False).reshape(len(vectors), vectors.type.list_size)
    return [table[start:end] for start, end in pairwise(bounds - bounds[0])]
