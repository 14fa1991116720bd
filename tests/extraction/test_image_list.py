import pytest
import torch
from PIL import Image

from hf_ngsan.extraction import list_images
from hf_ngsan.extraction.image_list import prepare_batch
from tests.tables import each_row

from .tiny import write_coco_file


def touch(folder, *names):
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(file, format="PNG")
    return folder


def listed(source, *arguments):
    return [(image.image_id, image.file_name) for image in list_images(source, *arguments).images]


def test_a_folder_is_searched_with_the_folders_within(tmp_path):
    touch(tmp_path, "b/COCO_val2014_000000000007.jpg", "000000000139.PNG", "a/2/12.webp", ".hidden/1.png", "._3.png")
    (tmp_path / "notes5.txt").write_text("no image")
    (tmp_path / "folder9.jpg").mkdir()
    assert listed(tmp_path) == [
        (139, "000000000139.PNG"),
        (12, "a/2/12.webp"),
        (7, "b/COCO_val2014_000000000007.jpg"),
    ]


def test_names_whose_numbers_are_not_unique_give_places(tmp_path):
    images = list_images(touch(tmp_path, "a/1.png", "b/1.png", "c.png"))
    assert [image.image_id for image in images.images] == [0, 1, 2] and len(images.notes) == 1


def test_links_to_folders_are_followed_once(tmp_path):
    touch(tmp_path / "real", "1.png")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "back").symlink_to(tmp_path / "photos")
    assert listed(f"images:{tmp_path / 'photos'},links=true", None, "train") == [(1, "link/1.png")]


@each_row("place", ["", "images"])
def test_a_coco_file_finds_its_images_beside_itself(tmp_path, place):
    touch(tmp_path / place, "a.png", "b.png")
    file = write_coco_file(tmp_path / "instances_val.json", {9: "b.png", 4: "a.png"})
    images = list_images(file)
    assert [(image.image_id, image.file_name) for image in images.images] == [(9, "b.png"), (4, "a.png")]
    assert images.folder == tmp_path / place and not images.has_captions


def test_places_without_images_are_refused(tmp_path):
    touch(tmp_path / "photos", "1.png")
    touch(tmp_path / "named", "\udcff.png")
    (tmp_path / "empty").mkdir()
    write_coco_file(tmp_path / "images.json", {1: "1.png"})
    write_coco_file(tmp_path / "none.json", {})
    cases = {
        ("empty",): "empty",
        ("absent",): "absent",
        ("named",): "udcff",
        ("photos/1.png",): r"1\.png",
        ("photos", "photos"): "--image-folder",
        ("images.json",): "--image-folder",
        ("images.json", "absent"): "absent",
        ("none.json", "photos"): "no images",
    }
    for names, fact in cases.items():
        with pytest.raises(ValueError, match=fact):
            list_images(*(tmp_path / name for name in names))


@each_row("name", ["../secret.png", "a/../../secret.png", "{folder}/secret.png", "link.png"])
def test_a_coco_file_reads_no_image_outside_of_its_folder(tmp_path, name):
    (tmp_path / "images").mkdir()
    touch(tmp_path, "secret.png")
    (tmp_path / "images" / "link.png").symlink_to(tmp_path / "secret.png")
    file = write_coco_file(tmp_path / "images" / "captions.json", {1: name.format(folder=tmp_path)})
    with pytest.raises(ValueError, match="outside"):
        list_images(file)


def test_an_image_that_cannot_be_preprocessed_is_left_out_alone(tmp_path):
    """The sides of an image with an extreme shape, whose proportions a processor keeps."""

    def processor(images, return_tensors):
        if any(image.width > 100 for image in images):
            raise ValueError("height and width must be > 0")
        return {"pixel_values": torch.zeros(len(images), 3, 8, 8)}

    touch(tmp_path, "1.png", "3.png")
    Image.new("RGB", (3000, 1)).save(tmp_path / "2.png")
    batch = prepare_batch(list_images(tmp_path), processor, None, 0, [0, 1, 2])
    assert batch.positions == [0, 2] and batch.inputs["pixel_values"].shape[0] == len(batch.sizes) == 2
    assert set(batch.stamps) == {0, 2}
    [(position, reason)] = batch.unreadable
    assert position == 1 and "2.png" in reason and "must be > 0" in reason
