"""Arrays of rows are those that the datasets library reads, whatever the shape of their column."""

import pickle

import numpy as np
import pytest
from datasets import Array2D, Dataset, Features, List, Value

from hf_ngsan.data.contract import lists_of_vectors, with_arrays

RANDOM = np.random.default_rng(0)


def vectors(number: int) -> list:
    return RANDOM.random((number, 3)).astype(np.float32).tolist()


COLUMNS = {
    "of one length": (lists_of_vectors(3, "float16"), [vectors(4) for _ in range(5)]),
    "of several lengths": (lists_of_vectors(3, "float32"), [vectors(number) for number in (2, 4, 1, 4, 3)]),
    "of double precision": (lists_of_vectors(3, "float64"), [vectors(2) for _ in range(5)]),
    "with an empty one": (lists_of_vectors(3, "float32"), [vectors(2), [], vectors(2), vectors(1), []]),
    "with one missing": (lists_of_vectors(3, "float32"), [vectors(2), None, vectors(2), vectors(2), vectors(2)]),
    "with a vector missing": (lists_of_vectors(3, "float32"), [vectors(1), [None], vectors(1), vectors(1), vectors(1)]),
    "of lists": (List(List(Value("float32"))), [vectors(2) for _ in range(5)]),
    "of two dimensions": (Array2D((2, 3), "float32"), [vectors(2) for _ in range(5)]),
}


def assert_same(ours, theirs) -> None:
    assert type(ours) is type(theirs)
    if isinstance(theirs, np.ndarray):
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    if isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for name, value in theirs.items():
            assert_same(ours[name], value)
    elif isinstance(theirs, list) or getattr(theirs, "dtype", None) == np.dtype(object):
        for one, other in zip(ours, theirs, strict=True):
            assert_same(one, other)
    else:
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", COLUMNS)
def test_arrays_are_those_of_the_numpy_format(name):
    kind, values = COLUMNS[name]
    columns = Features({"image_id": Value("int64"), "visual_features": kind})
    rows = Dataset.from_dict({"image_id": range(5), "visual_features": values}, features=columns)
    theirs = rows.with_format("numpy", columns=["visual_features"], output_all_columns=True)
    ours = pickle.loads(pickle.dumps(with_arrays(rows)))
    for key in (0, 1, slice(1, 4), [3, 0, 2], "visual_features"):
        one, other = ours[key], theirs[key]
        if key == "visual_features":
            one, other = one[:], other[:]
        assert_same(one, other)
    for one, other in zip(ours.select([4, 1]), theirs.select([4, 1]), strict=True):
        assert_same(one, other)
