"""Lists of vectors read in one step are those that `datasets` reads vector by vector."""

import numpy as np
from datasets import Dataset, concatenate_datasets

from hf_ngsan.data.contract import caption_features, with_arrays, with_whole_arrays
from tests.tables import each_row


def dataset_of(lengths, dtype="float16", seed=0) -> Dataset:
    generator = np.random.default_rng(seed)
    rows = [
        {
            "image_id": number,
            "visual_features": generator.random((length, 5)).astype(dtype),
            "visual_boxes": np.sort(generator.random((length, 4)), axis=1).astype("float32"),
            "captions": ["a dog"] * number,
        }
        for number, length in enumerate(lengths)
    ]
    return with_arrays(Dataset.from_list(rows, features=caption_features(5, dtype=dtype)))


@each_row("dtype", ["float16", "float32"])
@each_row("lengths", [[3, 3, 3, 3], [2, 3, 4, 1]])
def test_rows_and_batches_are_the_same(dtype, lengths):
    full = dataset_of(lengths, dtype)
    parts = concatenate_datasets([dataset_of(lengths[:1], dtype), dataset_of(lengths, dtype, seed=1)])
    for rows in (full, full.select([3, 1]), full.select(range(1, 3)), with_arrays(parts)):
        fast = with_whole_arrays(rows)
        assert fast.format["type"] != rows.format["type"]
        for index in range(len(rows)):
            np.testing.assert_equal(fast[index], rows[index])
            assert fast[index]["visual_features"].dtype == rows[index]["visual_features"].dtype == np.float32
        assert fast["image_id"][:] == rows["image_id"][:]
        for item, other in zip(fast.__getitems__([1, 0]), rows.__getitems__([1, 0]), strict=True):
            np.testing.assert_equal(item, other)
