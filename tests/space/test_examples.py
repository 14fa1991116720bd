"""Pictures to click on: two photographs of installed packages and a drawn scene, as the page carries them."""

import pytest

pytest.importorskip("matplotlib", reason="the extra demo is not installed")
pytest.importorskip("gradio", reason="the extra demo is not installed")

from hf_ngsan.io import packaged
from hf_ngsan.space import page
from hf_ngsan.space.drawing import SHOWN_SIDE
from tests.space.test_drawing import image_in


def test_each_example_is_a_picture_of_its_own_in_a_button():
    images = page.example_images()
    assert list(images) == [*page.EXAMPLES, "drawn scene"]
    made = page.example_buttons(images).split("<button")[1:]
    shown = [image_in(one, "jpeg") for one in made]
    assert len({image.tobytes() for image in shown}) == len(images) == 3
    assert all(max(image.size) <= SHOWN_SIDE for image in shown)


def test_photographs_of_missing_packages_are_left_out(monkeypatch):
    places = {"officer": ("no_such_package", "a.jpg"), "lion": ("gradio", "no_such.jpg")}
    monkeypatch.setattr(packaged, "PHOTOGRAPHS", places)
    assert list(page.example_images()) == ["drawn scene"]
