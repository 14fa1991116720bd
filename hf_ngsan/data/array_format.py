"""Rows whose features and boxes are arrays, read straight from Arrow's memory."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Features
from datasets.formatting import NumpyFormatter, _register_formatter
from datasets.formatting.formatting import NumpyArrowExtractor

FORMAT = "hf_ngsan_arrays"


@dataclass(frozen=True)
class Matrices:
    """How arrays are read. Its class brings the format along where rows are sent to another process."""


class MatrixExtractor(NumpyArrowExtractor):
    """Extracts lists of vectors as whole matrices, where the datasets library goes through them vector by vector."""

    def _arrow_array_to_numpy(self, pa_array: pa.ChunkedArray) -> np.ndarray:
        kind = pa_array.type
        is_matrix = pa.types.is_list(kind) and pa.types.is_fixed_size_list(kind.value_type)
        if not is_matrix or any(chunk.null_count or chunk.flatten().null_count for chunk in pa_array.chunks):
            return super()._arrow_array_to_numpy(pa_array)
        matrices = [matrix for chunk in pa_array.chunks for matrix in matrices_of(chunk)]
        lengths = {len(matrix) for matrix in matrices}
        if not lengths or 0 in lengths:
            return super()._arrow_array_to_numpy(pa_array)
        if len(lengths) == 1:
            return np.stack(matrices)
        column = np.empty(len(matrices), dtype=object)
        for row, matrix in enumerate(matrices):
            column[row] = matrix
        return column


class ArrayFormatter(NumpyFormatter):
    """The NumPy format of the datasets library, several times faster for lists of vectors of one dimension.

    Args:
        features: of the dataset.
        reader: how arrays are read.
    """

    numpy_arrow_extractor = MatrixExtractor

    def __init__(self, features: Features | None = None, reader: Matrices = Matrices(), **options: Any) -> None:
        super().__init__(features, **options)


def matrices_of(rows: pa.ListArray) -> list[np.ndarray]:
    """Returns the vectors of each row, `(N, D)`, of an array of lists without nulls."""
    vectors = rows.flatten()
    values = vectors.flatten().to_numpy(zero_copy_only=False).reshape(len(vectors), vectors.type.list_size)
    ends = np.cumsum(np.diff(rows.offsets))
    return np.split(values, ends[:-1])


_register_formatter(ArrayFormatter, FORMAT)
