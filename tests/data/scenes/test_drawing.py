import numpy as np
from PIL import Image, ImageColor

from hf_ngsan.data import draw_scene, load_data, make_scene
from hf_ngsan.data.scenes import PAINT


def pixels_of(picture, colour):
    return (np.abs(np.asarray(picture).astype(int) - ImageColor.getrgb(PAINT[colour])) < 12).all(axis=-1)


def test_every_object_is_seen_in_its_box_and_nowhere_else():
    for index in range(8):
        scene = make_scene(5, 0, index)
        picture = draw_scene(scene, size=320)
        assert picture.size == (320, 320) and picture.mode == "RGB"
        for name, box in zip(scene.objects, scene.boxes * 320, strict=True):
            seen = pixels_of(picture, name.split()[0])
            rows, columns = np.nonzero(seen)
            assert seen.sum() > 0.15 * (box[2] - box[0]) * (box[3] - box[1])
            assert columns.min() >= box[0] - 2 and columns.max() <= box[2] + 2
            assert rows.min() >= box[1] - 2 and rows.max() <= box[3] + 2


def test_rows_of_the_dataset_can_be_drawn_and_can_carry_their_picture():
    row = load_data("scenes:size=3,images=true", "train")[1]
    assert isinstance(row["image"], Image.Image)
    np.testing.assert_array_equal(np.asarray(row["image"]), np.asarray(draw_scene(row)))
    small = load_data("scenes:size=3,images=true,image_size=40", "train")[1]
    np.testing.assert_array_equal(np.asarray(small["image"]), np.asarray(draw_scene(row, 40)))
    assert (small["width"], small["height"]) == (40, 40)
    np.testing.assert_array_equal(small["visual_boxes"], row["visual_boxes"])
