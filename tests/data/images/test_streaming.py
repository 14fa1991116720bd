"""Streams have the rows of datasets, keep few images in memory, and shuffle them in windows."""

import os
import pickle

import numpy as np
from datasets import Dataset, Image

from hf_ngsan.data import EpochSampler, load_data, shuffle_buffer_of
from hf_ngsan.training.batches import take
from tests.data.facts import fails_naming
from tests.data.images.photos import (
    index_of,
    lists,
    parquet_folder,
    picture_bytes,
    several_columns,
    write_image_folder,
    write_parquet,
)
from tests.tables import each_row

NUMBER = 23


def many(folder):
    """Two Parquet files of images whose widths encode their numbers."""
    rows = {"image": [{"bytes": picture_bytes(n), "path": None} for n in range(NUMBER)]}
    rows |= {"captions": [[f"number {n}"] for n in range(NUMBER)]}
    dataset = Dataset.from_dict(rows).cast_column("image", Image())
    for number, part in enumerate((range(9), range(9, NUMBER))):
        write_parquet(dataset.select(part), folder / f"train-{number:05d}-of-00002.parquet")
    return folder


def image_folder(folder):
    texts = [["a"], ["b", "c"], ["d"]]
    rows = [{"file_name": f"photo_{n}.png", "captions": captions} for n, captions in enumerate(texts)]
    return write_image_folder(folder / "photos", rows, ".jsonl")


SOURCES = {
    "parquet folder": parquet_folder,
    "parquet file": lambda folder: write_parquet(lists(), folder / "train.parquet"),
    "several columns": lambda folder: write_parquet(several_columns(), folder / "train.parquet"),
    "files": image_folder,
}


@each_row("make", SOURCES.values())
def test_rows_are_those_of_the_dataset(make, tmp_path):
    source = make(tmp_path / "data")
    expected, actual = (load_data(f"images:{source}{keys}", "train") for keys in ("", ",streaming=true"))
    names = [name for name in expected.column_names if name != "file_name"]
    assert set(names) <= set(actual.column_names) and len(actual) == len(expected)
    for item, other in zip(actual, expected, strict=True):
        assert item["captions"] == other["captions"]
        assert item["image"].tobytes() == other["image"].tobytes()
    assert actual.select_columns(["captions"])[1]["captions"] == expected[1]["captions"]


@each_row("buffer", [4, 100])
def test_any_order_is_right_and_few_images_are_held(buffer, tmp_path):
    rows = load_data(f"images:{many(tmp_path / 'data')},streaming=true,shuffle_buffer={buffer}", "train")
    assert shuffle_buffer_of(rows) == buffer
    stream = rows.format["format_kwargs"]["stream"]
    for epoch in range(2):
        order = EpochSampler(NUMBER, 3, seed=0, epoch=epoch, window=buffer)
        for batch in order:
            assert [index_of(row["image"]) for row in take(rows, batch)] == batch
            assert len(stream.held) <= 2 * buffer + 3
    for batch in ([20, 2], [22], [0]):
        assert [row["captions"] for row in take(rows, batch)] == [[f"number {n}"] for n in batch]
        assert [index_of(row["image"]) for row in take(rows, batch)] == batch
    later = load_data(f"images:{tmp_path / 'data'},streaming=true,shuffle_buffer={buffer}", "train")
    for batch in EpochSampler(NUMBER, 3, seed=0, window=buffer, start_batch=4):
        assert [index_of(row["image"]) for row in take(later, batch)] == batch


def test_a_stream_that_has_become_shorter_is_an_error(tmp_path):
    file = write_parquet(lists(), tmp_path / "train.parquet")
    rows = load_data(f"images:{file},streaming=true", "train")
    write_parquet(lists().select([0]), file)
    with fails_naming(file, "1 images"):
        rows[2]


def test_another_process_reads_the_stream_itself(tmp_path):
    rows = load_data(f"images:{many(tmp_path / 'data')},streaming=true,shuffle_buffer=4", "train")
    assert index_of(rows[3]["image"]) == 3
    assert index_of(pickle.loads(pickle.dumps(rows))[4]["image"]) == 4
    child = os.fork()
    if child == 0:
        os._exit(0 if [index_of(rows[n]["image"]) for n in (5, 6, 12)] == [5, 6, 12] else 1)
    assert [index_of(rows[n]["image"]) for n in (4, 5, 11)] == [4, 5, 11]
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@each_row("window", [1, 5, 7, 50])
def test_rows_are_shuffled_within_windows(window):
    orders = []
    for epoch in range(3):
        sampler = EpochSampler(NUMBER, 4, seed=1, epoch=epoch, window=window)
        order = np.concatenate(list(sampler))
        assert sorted(order) == list(range(NUMBER))
        largest_before = np.maximum.accumulate(order)
        assert (largest_before - order < window).all()
        orders.append(order.tolist())
        parts = [list(EpochSampler(NUMBER, 4, seed=1, epoch=epoch, window=window, num_processes=2, process_index=n))
                 for n in range(2)]  # fmt: skip
        assert [item + other for item, other in zip(*parts, strict=True)] == list(sampler)
    assert (orders[0] != orders[1]) == (window > 1)
