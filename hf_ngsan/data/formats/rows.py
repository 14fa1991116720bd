"""Rows of the contract from records: grids pooled, and tables written without a Python object for each number."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from datasets import Features


def pool(features: np.ndarray, grid: tuple[int, int], grid_size: tuple[int, int]) -> np.ndarray:
    """Returns the cells of a grid pooled by their means to another size, as RSTNet does, float32."""
    import torch

    feature_map = torch.from_numpy(np.array(features.T, dtype=np.float32, order="C")).view(1, -1, *grid)
    return torch.nn.functional.adaptive_avg_pool2d(feature_map, grid_size).flatten(2)[0].T.numpy()


def table_of(rows: Sequence[dict], columns: Features) -> pa.Table:
    """Returns rows of arrays as an Arrow table, without a Python object for each number."""
    schema = columns.arrow_schema
    arrays = []
    for column in schema:
        values = [row[column.name] for row in rows]
        arrays.append(
            vectors_of(values, column.type) if isinstance(values[0], np.ndarray) else pa.array(values, column.type)
        )
    return pa.Table.from_arrays(arrays, schema=schema)


def vectors_of(values: list[np.ndarray], kind: pa.DataType) -> pa.ListArray:
    """Returns arrays `(N, D)` of any N as an Arrow array of lists of vectors."""
    offsets = np.concatenate([[0], np.cumsum([len(value) for value in values])])
    numbers = pa.array(np.concatenate(values).reshape(-1), kind.value_type.value_type)
    vectors = pa.FixedSizeListArray.from_arrays(numbers, type=kind.value_type)
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), vectors, type=kind)
