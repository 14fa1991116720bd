"""Heat maps: a panel for each word, and for the answer to a question, with the image and the word's map."""

import numpy
import pytest
from PIL import Image

from hf_ngsan.visualization import plot_question, plot_word_maps, save_figure
from tests.tables import each_row

WORDS = ["the", "red", "circle", "lies", "left"]
IMAGE = Image.new("RGB", (30, 20), "white")


def maps_with_peaks(number):
    maps = numpy.zeros((number, 20, 30), dtype=numpy.float32)
    for word in range(number):
        maps[word, word, 2 * word] = 0.25
    return maps


def check_panels(figure, titles):
    panels = [panel for panel in figure.axes if panel.images]
    assert [panel.get_title() for panel in panels] == titles
    for word, panel in enumerate(panels):
        picture, heat = (image.get_array() for image in panel.images)
        assert picture.shape == (20, 30, 3) and heat.max() == 1
        assert numpy.unravel_index(heat.argmax(), heat.shape) == (word, 2 * word)


def test_every_word_has_its_map(tmp_path):
    figure = plot_word_maps(IMAGE, WORDS, maps_with_peaks(5))
    check_panels(figure, WORDS)
    assert save_figure(figure, tmp_path / "maps.png").is_file()


def test_an_answer_has_a_map_too():
    *maps, of_answer = maps_with_peaks(3)
    check_panels(plot_question(IMAGE, ["what", "color"], maps, "red", of_answer), ["what", "color", "answer: red"])


@each_row(
    ("words", "shape", "named"),
    [([], (0, 20, 30), "words"), (WORDS, (4, 20, 30), "5, 20, 30"), (WORDS, (5, 30, 20), "5, 20, 30")],
)
def test_maps_that_do_not_fit(words, shape, named):
    with pytest.raises(ValueError, match=named):
        plot_word_maps(IMAGE, words, numpy.zeros(shape))


@each_row(
    ("words", "of_answer", "named"),
    [([], (20, 30), "words"), (["a"], (30, 20), "size"), (["a", "b"], (20, 30), "3, 20, 30")],
)
def test_maps_of_a_question_that_do_not_fit(words, of_answer, named):
    with pytest.raises(ValueError, match=named):
        plot_question(IMAGE, words, numpy.zeros((min(len(words), 1), 20, 30)), "red", numpy.zeros(of_answer))
