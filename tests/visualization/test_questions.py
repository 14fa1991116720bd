"""The figure of a question: a panel for each word and one for the answer."""

import numpy
import pytest
from PIL import Image

from hf_ngsan.visualization import plot_question

IMAGE = Image.new("RGB", (8, 6), "white")


def test_words_and_answer_have_their_maps():
    maps = numpy.zeros((2, 6, 8), dtype=numpy.float32)
    maps[0, 1, 1] = maps[1, 2, 2] = 0.5
    of_answer = numpy.zeros((6, 8))
    of_answer[3, 3] = 0.1
    figure = plot_question(IMAGE, ["what", "color"], maps, "red", of_answer)
    panels = [panel for panel in figure.axes if panel.images]
    assert [panel.get_title() for panel in panels] == ["what", "color", "answer: red"]
    brightest = [numpy.unravel_index(panel.images[1].get_array().argmax(), (6, 8)) for panel in panels]
    assert brightest == [(1, 1), (2, 2), (3, 3)]


def test_maps_that_do_not_fit():
    for words, maps, of_answer, said in (
        ([], numpy.zeros((0, 6, 8)), numpy.zeros((6, 8)), "no words"),
        (["a"], numpy.zeros((1, 6, 8)), numpy.zeros((8, 6)), "differ in size"),
        (["a", "b"], numpy.zeros((1, 6, 8)), numpy.zeros((6, 8)), r"must be \(3, 6, 8\)"),
    ):
        with pytest.raises(ValueError, match=said):
            plot_question(IMAGE, words, maps, "red", of_answer)
