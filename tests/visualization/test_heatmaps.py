"""Heat maps: a panel for each word, with the image and the word's map."""

import numpy
import pytest
from PIL import Image

from hf_ngsan.visualization import plot_word_maps, save_figure

WORDS = ["the", "red", "circle", "lies", "left"]
IMAGE = Image.new("RGB", (30, 20), "white")


def test_every_word_has_its_map(tmp_path):
    maps = numpy.zeros((5, 20, 30), dtype=numpy.float32)
    for word in range(5):
        maps[word, word, 2 * word] = 0.25
    figure = plot_word_maps(IMAGE, WORDS, maps)
    panels = [panel for panel in figure.axes if panel.images]
    assert [panel.get_title() for panel in panels] == WORDS
    for word, panel in enumerate(panels):
        picture, heat = panel.images
        assert picture.get_array().shape == (20, 30, 3)
        shown = heat.get_array()
        assert numpy.unravel_index(shown.argmax(), shown.shape) == (word, 2 * word)
        assert shown.max() == 1
    assert save_figure(figure, tmp_path / "maps.png").is_file()


@pytest.mark.parametrize(
    ("words", "shape", "message"),
    [
        ([], (0, 20, 30), "has no words"),
        (WORDS, (4, 20, 30), r"must be \(5, 20, 30\)"),
        (WORDS, (5, 30, 20), r"must be \(5, 20, 30\)"),
    ],
)
def test_maps_that_do_not_fit(words, shape, message):
    with pytest.raises(ValueError, match=message):
        plot_word_maps(IMAGE, words, numpy.zeros(shape))
