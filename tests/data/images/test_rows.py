import pickle
from pathlib import Path

import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Image, Value

from hf_ngsan.data import CaptionCollator, load_data
from hf_ngsan.data.images.loading import load_image_dataset
from tests.data.facts import fails_naming
from tests.data.images.photos import (
    CAPTIONS,
    encoded_without_description,
    index_of,
    lists,
    one_row_a_caption,
    parquet_folder,
    picture_bytes,
    several_columns,
    split_dictionary,
    table,
    write_image_folder,
    write_parquet,
)
from tests.tables import each_row

FILE_NAMES = [f"photo_{index}.png" for index in range(3)]


def check_rows(rows, indices=(0, 1, 2), captions=CAPTIONS):
    assert [index_of(row["image"]) for row in rows] == list(indices)
    assert [row["captions"] for row in rows] == [captions[index] for index in indices]
    assert all(type(row["image_id"]) is int for row in rows)
    assert rows.features["image_id"] == Value("int64")
    assert isinstance(rows.features["image"], Image)


def save(dataset, folder: Path) -> Path:
    dataset.save_to_disk(str(folder))
    return folder


def as_one_row_a_caption(suffix):
    images = zip(FILE_NAMES, CAPTIONS, strict=True)
    rows = [{"file_name": name, "text": text} for name, texts in images for text in texts]
    return lambda folder: write_image_folder(folder, rows, suffix)


def as_lists_of_lines(folder):
    rows = [{"file_name": name, "captions": texts} for name, texts in zip(FILE_NAMES, CAPTIONS, strict=True)]
    return write_image_folder(folder, rows, ".jsonl")


SHAPES = {
    "Parquet, lists": lambda folder: parquet_folder(folder),
    "Parquet, several columns": lambda folder: write_parquet(several_columns(), folder / "train.parquet").parent,
    "Parquet, a row a caption": lambda folder: write_parquet(one_row_a_caption(), folder / "train.parquet").parent,
    "Parquet, images undescribed": lambda folder: write_parquet(
        encoded_without_description(lists()), folder / "train.parquet"
    ),
    "one Parquet file": lambda folder: write_parquet(lists(), folder / "all.parquet"),
    "save_to_disk, splits": lambda folder: save(split_dictionary(), folder),
    "save_to_disk, no splits": lambda folder: save(lists(), folder),
    "save_to_disk, undecoded": lambda folder: save(lists().cast_column("image", Image(decode=False)), folder),
    "save_to_disk, column split": lambda folder: save(lists().add_column("split", ["train"] * 3), folder),
    "metadata.csv, a row a caption": as_one_row_a_caption(".csv"),
    "metadata.jsonl, a row a caption": as_one_row_a_caption(".jsonl"),
    "metadata.jsonl, lists": as_lists_of_lines,
}


@each_row("shape", SHAPES)
def test_every_shape_gives_the_same_rows(tmp_path, shape):
    rows = load_data(f"images:{SHAPES[shape](tmp_path / 'mine')}", "train")
    check_rows(rows)
    assert rows["image_id"][:] == ([0, 1, 3] if shape == "Parquet, a row a caption" else [0, 1, 2])
    assert rows.info.description == ""
    assert rows.cache_files or shape.startswith("metadata"), "images lie on the disk, not in memory"


@each_row(
    "column",
    [{"image_id": [7, 5, 3_767_841_911]}, {"img_id": ["7", "005", "3767841911"]}, {"cocoid": [7.0, 5.0, 3767841911.0]}],
)
def test_an_id_tells_the_rows_of_an_image_and_is_its_number(tmp_path, column):
    """The last two pictures are equal, but they are two images."""
    dataset = one_row_a_caption(**column).cast_column("image", Image(decode=False))
    data = [{"bytes": picture_bytes(min(index, 1)), "path": None} for index in (0, 1, 1, 2, 2, 0)]
    dataset = dataset.remove_columns("image").add_column("image", data).cast_column("image", Image())
    rows = load_data(f"images:{write_parquet(dataset, tmp_path / 'mine.parquet')}", "train")
    assert rows["image_id"][:] == [7, 5, 3_767_841_911]
    assert rows["captions"][:] == CAPTIONS
    assert [index_of(row["image"]) for row in rows] == [0, 1, 1]


def test_an_id_of_several_images_is_not_taken_for_their_number(tmp_path):
    file = write_parquet(lists().add_column("image_id", [4, 4, 5]), tmp_path / "mine.parquet")
    with pytest.warns(UserWarning, match="image_id"):
        rows = load_data(f"images:{file}", "train")
    assert rows["image_id"][:] == [0, 1, 2]


@each_row("keys", [[7, 12, 7], ["7.png", "12.png", "7.png"]])
@each_row("kind", ["bytes", "files"])
def test_different_images_of_one_id_are_refused_and_equal_ones_are_one(tmp_path, keys, kind):
    for other, is_refused in ((0, False), (2, True)):
        numbers = enumerate((0, 1, other))
        stored = [{"bytes": picture_bytes(number), "path": f"{place}.png"} for place, number in numbers]
        column = "image_id" if keys[0] == 7 else "filename"
        rows = {"image": stored, column: keys, "caption": ["a cat", "a dog", "one cat"]}
        if kind == "files":
            for image in stored:
                (tmp_path / image["path"]).write_bytes(image.pop("bytes"))
            rows["image"] = [image["path"] for image in stored]
        source = f"images:{write_parquet(Dataset.from_dict(rows), tmp_path / f'rows{other}.parquet')},image=image"
        if is_refused:
            with fails_naming(column, keys[0], "rows 0 and 2"):
                load_data(source, "train")
        else:
            assert load_data(source, "train")["captions"][:] == [["a cat", "one cat"], ["a dog"]]


def test_captions_without_a_word_and_images_without_captions_are_left_out(tmp_path):
    captions = [["a cat", " \n", None, "one cat"], [" "], None]
    full = table({"image": [0, 1, 2], "captions": captions})
    a_row_a_caption = table({"image": [0, 0, 1, 0], "caption": ["a cat", None, " ", "one cat"]})
    for dataset, numbers in ((full, "2 of 3"), (a_row_a_caption, "1 of 2")):
        file = write_parquet(dataset, tmp_path / f"{numbers}.parquet")
        with pytest.warns(UserWarning, match=numbers):
            rows = load_data(f"images:{file}", "train")
        check_rows(rows, [0])


def test_columns_can_be_named(tmp_path):
    dataset = table({"left": [0, 1, 2], "en": ["a cat", "a dog", "a cow"]}, image="left")
    dataset = dataset.add_column("de, alt=1", ["eine Katze", "ein Hund", "eine Kuh"])
    right = [{"bytes": picture_bytes(index), "path": None} for index in (2, 1, 0)]
    dataset = dataset.add_column("right", right).cast_column("right", Image())
    spec = f"images:{write_parquet(dataset, tmp_path / 'mine.parquet')}"
    assert [index_of(row["image"]) for row in load_data(f"{spec},image=right", "train")] == [2, 1, 0]
    rows = load_data(f"{spec},captions=en,image=left", "train")
    check_rows(rows, captions=[["a cat"], ["a dog"], ["a cow"]])
    both = load_image_dataset(str(tmp_path / "mine.parquet"), "train", image="left", captions="en+de, alt=1")
    assert both["captions"][0] == ["a cat", "eine Katze"]
    file = write_parquet(table({"image": [0], "a+b": ["a cat"], "a": ["no"]}), tmp_path / "plus.parquet")
    assert load_data(f"images:{file},captions=a+b", "train")["captions"][:] == [["a cat"]]


@each_row("as_bytes", [False, True])
def test_images_as_paths_or_bytes(tmp_path, as_bytes):
    for index in range(3):
        (tmp_path / f"{index}.png").write_bytes(picture_bytes(index))
    values = [picture_bytes(index) if as_bytes else f"{index}.png" for index in range(3)]
    file = write_parquet(Dataset.from_dict({"where": values, "captions": CAPTIONS}), tmp_path / "mine.parquet")
    check_rows(load_data(f"images:{file},image=where", "train"))
    if as_bytes:  # a column with a usual name of images is found
        named = Dataset.from_dict({"JPG": values, "captions": CAPTIONS})
        check_rows(load_data(f"images:{write_parquet(named, tmp_path / 'named.parquet')}", "train"))


@each_row("split", ["validation", "val"])
def test_splits_by_file_names_keys_and_columns(tmp_path, split):
    column = ["train", "valid", "train"]
    label = lists().add_column("split", [0, 1, 0]).cast_column("split", ClassLabel(names=["train", "dev"]))
    sources = {
        parquet_folder(tmp_path / "folder"): [2, 0],
        save(split_dictionary(), tmp_path / "saved"): [2, 0],
        write_parquet(lists().select([2, 0]), tmp_path / "flickr_val-00.parquet"): [2, 0],
        write_parquet(lists().add_column("split", column), tmp_path / "karpathy.parquet"): [1],
        save(DatasetDict(test=lists().add_column("split", column)), tmp_path / "one"): [1],
        save(label, tmp_path / "label"): [1],
    }
    for source, indices in sources.items():
        check_rows(load_data(f"images:{source}", split), indices)


def test_rows_can_be_changed_as_training_does_and_sent_to_another_process(tmp_path):
    rows = load_data(f"images:{write_parquet(one_row_a_caption(), tmp_path / 'mine.parquet')}", "train")
    rows = rows.add_column("caption_weights", [[0.5, 1.5]] * 3)
    check_rows(rows)
    chosen = pickle.loads(pickle.dumps(rows.select([2, 0])))
    check_rows(chosen, [2, 0])
    batch = chosen.__getitems__([1, 0])
    assert [index_of(row["image"]) for row in batch] == [0, 2]
    assert batch[0]["caption_weights"] == [0.5, 1.5]
    assert "image" not in chosen.remove_columns("image")[0]
    assert [index_of(image) for image in chosen["image"]] == [2, 0]
    inputs = CaptionCollator(lambda **inputs: inputs, captions_per_image=2)(batch)
    assert [index_of(image) for image in inputs["images"]] == [0, 2]
    assert inputs["captions"] == [CAPTIONS[0], CAPTIONS[2]]
    assert set(chosen.select_columns(["captions"])[0]) == {"captions"}
    assert chosen.map(lambda row: {"side": row["image"].width})["side"][:] == [22, 20]


@each_row("as_file", [False, True])
def test_a_damaged_image_is_named_when_it_is_read(tmp_path, as_file):
    content = picture_bytes(1)[:40]
    if as_file:
        source = SHAPES["metadata.jsonl, lists"](tmp_path / "mine")
        (source / "photo_1.png").write_bytes(content)
    else:
        data = [{"bytes": picture_bytes(0), "path": None}, {"bytes": content, "path": None}]
        dataset = Dataset.from_dict({"image": data, "captions": CAPTIONS[:2], "image_id": [4, 1]})
        source = write_parquet(dataset.cast_column("image", Image()), tmp_path / "mine.parquet")
    rows = load_data(f"images:{source}", "train")
    check_rows(rows.select([0]), [0])
    for read in (lambda: rows[1], lambda: rows.__getitems__([0, 1]), lambda: list(rows)):
        with fails_naming(source, "split train", "image_id 1", *(["file_name photo_1.png"] if as_file else [])):
            read()
    with fails_naming(source):
        rows.select_columns("image")[1]
