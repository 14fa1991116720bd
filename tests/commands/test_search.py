"""`hf-ngsan index` and `hf-ngsan search`: photos of a folder are found by text and by image."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset, DatasetDict
from PIL import Image

from hf_ngsan.cli import main
from hf_ngsan.loading.models import save_model
from hf_ngsan.retrieval import IndexFolder
from hf_ngsan.tasks import retrieval_search as image_index
from hf_ngsan.tasks.retrieval_search import embed_pixels
from tests.data.images.photos import write_image_folder
from tests.extraction.tiny import write_coco_file
from tests.models.mhsan.tiny import VISION, tiny_model, tiny_processor
from tests.models.tiny_photos import PHOTOS

from .running import fails, prints

HERE = ("--num-workers", "0")
SKIPPING = (*HERE, "--skip-errors")
"""Images are read in this process."""


@pytest.fixture
def model(dual_encoder):
    return dual_encoder


@pytest.fixture
def photos(tmp_path):
    (tmp_path / "photos" / "more").mkdir(parents=True)
    for number, photo in enumerate(PHOTOS):
        photo.save(tmp_path / "photos" / ("more" if number > 2 else "") / f"photo{number}.png")
    return tmp_path / "photos"


def names_of(output: str) -> list[str]:
    return [line.split("\t")[1] for line in output.splitlines()]


def test_images_are_found_by_words_and_by_an_image(model, photos, tmp_path, capsys):
    (photos / "broken.png").write_bytes(b"no image")
    index = tmp_path / "photos.index"
    printed = prints(capsys, "index", "--model", model, "--images", photos, "--output", index, *SKIPPING)
    assert "5 images, 1 skipped" in printed and "broken.png" in printed
    actual = prints(capsys, "search", index, "--image", photos / "more" / "photo3.png", "--top-k", 2)
    assert names_of(actual)[0] == "more/photo3.png"
    assert float(actual.split("\t")[0]) == pytest.approx(1, abs=1e-3)

    actual = prints(capsys, "search", index, "a red ball", "--figure", tmp_path / "new" / "hits.png")
    with Image.open(tmp_path / "new" / "hits.png") as figure:
        assert figure.width > 1000
    dual_encoder, processor = tiny_model(vision_config=VISION), tiny_processor(pixels=True)
    with torch.no_grad():
        embeds = dual_encoder(**processor(images=PHOTOS, text="a red ball"))
    similarities = (embeds.image_embeds @ embeds.text_embeds[0]).tolist()
    order = sorted(range(5), key=lambda place: -similarities[place])
    assert [name[-10:] for name in names_of(actual)] == [f"photo{place}.png" for place in order]
    scores = [float(line.split("\t")[0]) for line in actual.splitlines()]
    assert scores == pytest.approx([similarities[place] for place in order], abs=1e-3)


def test_captions_of_an_index_are_printed_beside_names(model, tmp_path, capsys):
    rows = [{"file_name": f"photo_{n}.png", "captions": [f"a  ball\n{n}", "red"]} for n in range(3)]
    photos = write_image_folder(tmp_path / "photos", rows, ".jsonl")
    index = tmp_path / "index"
    prints(
        capsys, "index", "--model", model, "--images", f"images:{photos}", "--split", "train", "--output", index, *HERE
    )
    actual = prints(capsys, "search", index, "a red ball")
    lines = sorted(line.split("\t")[1:] for line in actual.splitlines())
    assert lines == [[f"photo_{n}.png", f"a ball {n} | red"] for n in range(3)]


def test_a_match_is_explained_by_head(model, photos, tmp_path, capsys):
    figure = tmp_path / "new" / "heads.png"
    printed = prints(capsys, "explain", "--model", model, photos / "photo0.png", "a red ball", "--figure", figure)
    first, *lines = [line.split("\t") for line in printed.splitlines()]
    for side, heads in (("image", 3), ("text", 2)):
        shares = [float(line[1]) for line in lines if line[0].startswith(side)]
        assert len(shares) == heads + 1
        assert sum(shares) == pytest.approx(float(first[1]), abs=1e-3)
    assert {line[2] for line in lines if line[0].startswith("text head")} <= {"a", "red", "ball"}
    with Image.open(figure) as drawn:
        assert drawn.width > 500
    assert "zeppelin" in fails(capsys, "explain", "--model", model, photos / "photo0.png", "zeppelin")
    assert "missing.png" in fails(capsys, "explain", "--model", model, photos / "missing.png", "a ball")


def test_several_indexes_are_searched_as_one(model, photos, tmp_path, capsys):
    full, parts = tmp_path / "whole", [tmp_path / name for name in ("first.index", "second.index")]
    for index, images in zip([full, *parts], [photos, photos / "more", photos], strict=True):
        if index == parts[1]:
            shutil.rmtree(photos / "more")
        prints(capsys, "index", "--model", model, "--images", images, "--output", index, *HERE)
    expected = [line.split("\t") for line in prints(capsys, "search", full, "a red ball").splitlines()]
    actual = prints(capsys, "search", *parts, "a red ball", "--figure", tmp_path / "hits.png")
    merged = [line.split("\t") for line in actual.splitlines()]
    assert [(score, Path(name).name) for score, name in expected] == [(score, name) for score, _, name in merged]
    assert {(folder, name) for _, folder, name in merged} == {
        (str(parts[number < 3]), f"photo{number}.png") for number in range(5)
    }
    assert (tmp_path / "hits.png").stat().st_size
    by_image = prints(capsys, "search", *parts, "--image", photos / "photo0.png", "--top-k", 1)
    assert by_image.split("\t")[1:] == [str(parts[1]), "photo0.png\n"]
    other = tmp_path / "other"
    save_model(tiny_model(seed=5, vision_config=VISION), tiny_processor(pixels=True), other)
    prints(capsys, "index", "--model", other, "--images", photos, "--output", tmp_path / "other.index", *HERE)
    assert "other.index was made with another model" in fails(
        capsys, "search", parts[0], tmp_path / "other.index", "a red ball"
    )


@pytest.fixture
def embedded(monkeypatch):
    """The number of images of each embedded batch."""
    numbers = []

    def counted(encoder, inputs):
        numbers.append(len(inputs["pixel_values"]))
        return embed_pixels(encoder, inputs)

    monkeypatch.setattr(image_index, "embed_pixels", counted)
    return numbers


def same_index(first, second) -> bool:
    """Returns whether two indexes have the same names, embeddings, thumbnails and stamps, in the same order."""
    item, other = IndexFolder.open(first), IndexFolder.open(second)
    places = item.all_places()
    return (
        item.items() == other.items()
        and np.allclose(item.embeddings_at(places), other.embeddings_at(places), atol=1e-3)
        and item.thumbnails_at(places) == other.thumbnails_at(places)
        and item.stamps() == other.stamps()
    )


@pytest.mark.parametrize("backend", ["exact", pytest.param("milvus", marks=pytest.mark.slow)])
def test_an_index_grows(model, photos, tmp_path, capsys, embedded, backend):
    """Only new and changed files are embedded; the index equals one that is made in one run."""
    if backend != "exact":
        pytest.importorskip("milvus_lite")
    index, at_once = tmp_path / "index", tmp_path / "at_once"
    to = f"milvus:{photos / 'milvus.db'}" if backend == "milvus" else backend
    options = ["--model", model, "--images", photos, "--images-per-shard", 2, "--backend", to, *SKIPPING]
    (photos / "broken.png").write_bytes(b"no image")
    prints(capsys, "index", *options, "--output", index)
    assert sum(embedded) == 5
    prints(capsys, "index", *options, "--output", index)
    os.utime(photos / "photo0.png", (0, 0))  # of the same content
    prints(capsys, "index", *options, "--output", index)
    assert sum(embedded) == 5
    PHOTOS[4].save(photos / "photo0.png")
    PHOTOS[1].save(photos / "another.png")
    printed = prints(capsys, "index", *options, "--output", index)
    assert "6 images, 1 skipped" in printed and sum(embedded) == 7
    prints(capsys, "index", *options, "--output", at_once)
    assert same_index(index, at_once)
    actual = [prints(capsys, "search", item, "a red ball") for item in (index, at_once)]
    assert actual[0] == actual[1] and "another.png" in actual[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["at_once", "index", "photos"]


def test_images_that_are_gone_stay_until_they_are_pruned(model, photos, tmp_path, capsys, embedded):
    index, at_once = tmp_path / "index", tmp_path / "at_once"
    options = ["--model", model, "--images", photos, *HERE]
    prints(capsys, "index", *options, "--output", index)
    (photos / "photo1.png").unlink()
    PHOTOS[1].save(photos / "new.png")
    for _ in range(2):
        assert "6 images" in prints(capsys, "index", *options, "--output", index)
        assert sum(embedded) == 6
        assert "photo1.png" in prints(capsys, "search", index, "a red ball")
    assert "5 images" in prints(capsys, "index", *options, "--output", index, "--prune")
    assert sum(embedded) == 6
    prints(capsys, "index", *options, "--output", at_once)
    assert same_index(index, at_once)


def grow(capsys, model, images, index, *options) -> list[str]:
    """Runs `hf-ngsan index`; returns the names of the images, sorted."""
    prints(capsys, "index", "--model", model, "--images", images, "--output", index, *options, *SKIPPING)
    return sorted(IndexFolder.open(index).items()[0])


def test_images_of_one_name_stay_as_many_as_they_are(model, photos, tmp_path, capsys, embedded):
    names = {1: "photo0.png", 2: "photo0.png", 3: "photo1.png"}
    command = [capsys, model, write_coco_file(tmp_path / "list.json", names), tmp_path / "index"]
    for _ in range(2):
        assert grow(*command, "--image-folder", photos) == sorted(names.values())
    assert sum(embedded) == 3
    write_coco_file(tmp_path / "list.json", {**names, 4: "photo0.png"})
    assert grow(*command, "--image-folder", photos) == ["photo0.png"] * 3 + ["photo1.png"]
    assert sum(embedded) == 4


def save_dataset(folder, **splits):
    """Saves a dataset whose rows have images and numbers, but no names."""
    shutil.rmtree(folder, ignore_errors=True)
    rows = {name: Dataset.from_dict({"image": [PHOTOS[item] for item in numbers]}) for name, numbers in splits.items()}
    DatasetDict(rows).save_to_disk(folder)
    return f"images:{folder}"


def test_other_images_of_the_same_names_are_refused(model, photos, tmp_path, capsys):
    """Another split of a dataset without names, and another folder."""
    spec = save_dataset(tmp_path / "dataset", train=[0, 1, 2], test=[3, 4])
    shutil.copytree(photos, tmp_path / "others")
    for number in range(3):
        PHOTOS[3 + number % 2].save(tmp_path / "others" / f"photo{number}.png")
    for number in (3, 4):
        PHOTOS[0].save(tmp_path / "others" / "more" / f"photo{number}.png")
    for images, options, others, other_options in (
        (spec, ["--split", "train"], spec, ["--split", "test"]),
        (photos, [], tmp_path / "others", []),
    ):
        index = tmp_path / f"index{len(options)}"
        grow(capsys, model, images, index, *options)
        before = IndexFolder.open(index).checksum()
        printed = fails(capsys, "index", "--model", model, "--images", others, "--output", index, *other_options, *HERE)
        assert str(index) in printed and IndexFolder.open(index).checksum() == before


def test_images_change_between_a_kill_and_the_next_run(model, photos, tmp_path, capsys, monkeypatch):
    """The unfinished index has other images; embeddings of images in both are kept."""
    index, write = tmp_path / "index", IndexFolder.write_shard
    grow(capsys, model, photos, index, "--images-per-shard", 1)
    PHOTOS[1].save(photos / "new.png")

    def dying(self, number, *rest):
        write(self, number, *rest)
        if number == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(IndexFolder, "write_shard", dying)
    command = ["index", "--model", model, "--images", photos, "--output", index, "--images-per-shard", "1", *HERE]
    assert main(list(map(str, command))) == 130
    monkeypatch.setattr(IndexFolder, "write_shard", write)
    PHOTOS[4].save(photos / "new.png")
    PHOTOS[3].save(photos / "photo0.png")
    grow(capsys, model, photos, index, "--images-per-shard", 1)
    grow(capsys, model, photos, tmp_path / "at_once", "--images-per-shard", 1)
    assert same_index(index, tmp_path / "at_once")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["at_once", "index", "photos"]


def test_mistakes_get_one_sentence(model, photos, tmp_path, capsys):
    index = tmp_path / "index"
    prints(capsys, "index", "--model", model, "--images", photos, "--output", index, *HERE)
    assert "no words" in fails(capsys, "search", index, " ")
    assert "zeppelin" in fails(capsys, "search", index, "zeppelin")
    assert "--image" in fails(capsys, "search", index)
    assert "a ball" in fails(capsys, "search", index, "a ball", "--image", photos / "photo0.png")
    assert "missing.png" in fails(capsys, "search", index, "--image", photos / "missing.png")
    assert "index.json" in fails(capsys, "search", photos, "a ball")
    other = tmp_path / "other"
    save_model(tiny_model(seed=5, vision_config=VISION), tiny_processor(pixels=True), other)
    assert "another model" in fails(capsys, "search", index, "a ball", "--model", other)
    blind = tmp_path / "blind"
    save_model(tiny_model(), tiny_processor(), blind)
    printed = fails(capsys, "index", "--model", blind, "--images", photos, "--output", tmp_path / "new")
    assert "no vision encoder" in printed and not (tmp_path / "new").exists()
    new = ("index", "--model", model, "--images", photos, "--output", tmp_path / "new")
    assert "exakt" in fails(capsys, *new, "--backend", "exakt") and not (tmp_path / "new").exists()
    (photos / "broken.png").write_bytes(b"no image")
    stopped = ["index", "--model", model, "--images", photos, "--output", tmp_path / "stopped", "--batch-size", 1]
    assert "broken.png" in fails(capsys, *stopped, *HERE)
    assert "1 skipped" in prints(capsys, *stopped, *SKIPPING)
    assert "broken.png" in fails(capsys, *stopped, *HERE)
    network = tiny_model(seed=5, vision_config=VISION)
    torch.nn.init.constant_(network.image_projection.weight, torch.nan)
    save_model(network, tiny_processor(pixels=True), tmp_path / "no_numbers")
    no_numbers = ["--model", tmp_path / "no_numbers", "--images", photos, "--output", tmp_path / "nan"]
    assert "not finite" in fails(capsys, "index", *no_numbers, *SKIPPING)
