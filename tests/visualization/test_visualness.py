"""Figures of visualness: words in colours under their image, and the extremes of a table."""

import pytest
from PIL import Image

from hf_ngsan.visualization import plot_visual_words, plot_visualness, save_figure
from hf_ngsan.visualization.visualness import words_in_lines
from tests.tables import each_row

WORDS = [("a", 0.1), ("red", 0.9), ("circle", 0.8), ("lies", 0.3), ("left", 0.7)]
TABLE = [(f"word{place}", 1 - place / 40, 50 - place, 0.05) for place in range(40)]


def test_words_stand_under_the_image_in_their_order(tmp_path):
    figure = plot_visualness(Image.new("RGB", (30, 20), "white"), WORDS)
    [picture] = [axes for axes in figure.axes if axes.images]
    assert picture.images[0].get_array().shape == (20, 30, 3)
    [text] = [axes for axes in figure.axes if axes.texts]
    assert [word.get_text() for word in text.texts] == [word for word, _ in WORDS]
    places = [word.get_position()[0] for word in text.texts]
    assert places == sorted(places)
    colors = {tuple(word.get_bbox_patch().get_facecolor()) for word in text.texts}
    assert len(colors) == len(WORDS)
    assert save_figure(figure, tmp_path / "caption.png").is_file()


def test_long_captions_are_broken_between_words():
    words = [("caption", 0.5)] * 12
    lines = words_in_lines(words)
    assert [word for line in lines for word in line] == words
    assert len(lines) == 3
    assert all(len(" ".join(word for word, _ in line)) <= 42 for line in lines)
    assert words_in_lines([("x" * 50, 0.5), ("y", 0.5)]) == [[("x" * 50, 0.5)], [("y", 0.5)]]


@each_row(("number", "shown"), [(3, [0, 1, 2, 37, 38, 39]), (20, range(40)), (100, range(40))])
def test_the_extremes_of_a_table_are_shown(number, shown):
    [axes] = plot_visual_words(TABLE, number).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"word{n} ({50 - n})" for n in shown]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([1 - n / 40 for n in shown])


def test_no_words():
    with pytest.raises(ValueError, match="words"):
        plot_visual_words([])
    plot_visualness(Image.new("RGB", (30, 20)), [])
