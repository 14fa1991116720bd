"""Figures: their content, complete or absent files, and errors without matplotlib."""

import sys

import numpy as np
import pytest
from PIL import Image

from hf_ngsan.visualization import (
    MissingPlotsError,
    plot_contact_sheet,
    plot_question,
    plot_visual_words,
    plot_visualness,
    plot_word_maps,
    save_figure,
)
from tests.tables import each_row

WORDS = ["the", "red", "circle", "lies", "left"]
BOXES = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.0, 0.9, 0.25], [0.4, 0.6, 0.6, 0.9]])
IMAGE = Image.new("RGB", (200, 100), "white")
SQUARE = Image.new("RGB", (20, 20), "red")


def titles_of(figure) -> list[str]:
    return [panel.get_title() for panel in figure.axes]


def peaks(number: int) -> np.ndarray:
    maps = np.zeros((number, 100, 200), dtype=np.float32)
    maps[range(number), range(number), range(number)] = 0.25
    return maps


def check_maps(figure, titles):
    assert titles_of(figure)[: len(titles)] == titles
    for number, panel in enumerate(figure.axes[: len(titles)]):
        picture, heat = (image.get_array() for image in panel.images)
        assert picture.shape == (100, 200, 3) and heat.max() == 1
        assert np.unravel_index(heat.argmax(), heat.shape) == (number, number)


def test_every_word_and_the_answer_to_a_question_have_their_map():
    check_maps(plot_word_maps(IMAGE, WORDS, peaks(5)), WORDS)
    *maps, answer_map = peaks(3)
    check_maps(plot_question(IMAGE, ["what", "color"], maps, "red", answer_map), ["what", "color", "answer: red"])


@each_row(("words", "shape"), [([], (0, 100, 200)), (WORDS, (4, 100, 200)), (WORDS, (5, 200, 100))])
def test_maps_that_do_not_fit(words, shape):
    with pytest.raises(ValueError, match="maps"):
        plot_word_maps(IMAGE, words, np.zeros(shape))


@each_row(("number", "panels"), [(1, 1), (3, 3), (4, 6)])
def test_every_image_of_a_contact_sheet_has_a_panel(number, panels):
    labels = [f"{place}.jpg" for place in range(number)]
    figure = plot_contact_sheet([SQUARE] * number, labels, "red squares")
    assert titles_of(figure) == [*labels, *[""] * (panels - number)]
    assert [len(panel.images) for panel in figure.axes[:number]] == [1] * number
    assert figure.get_suptitle() == "red squares"


def test_a_contact_sheet_without_a_thumbnail_and_with_names_that_are_no_formulas(tmp_path):
    names = ["a$b$_{", "x" * 100, "line\nbreak \x07"]
    figure = plot_contact_sheet([None, SQUARE, SQUARE.convert("L")], names, "$\\frac$")
    save_figure(figure, tmp_path / "sheet.png")
    first, second, third = titles_of(figure)
    assert first == names[0] and len(second) < 40 and third == "line?break ?"
    assert not figure.axes[0].images
    with pytest.raises(ValueError):
        plot_contact_sheet([SQUARE], [])


def test_words_stand_under_the_image_in_the_colours_of_their_visualness():
    words = [(f"word{place}", place / 11) for place in range(12)]
    figure = plot_visualness(SQUARE, words)
    picture, text = figure.axes[:2]
    assert picture.images[0].get_array().shape == (20, 20, 3)
    assert [word.get_text() for word in text.texts] == [word for word, _ in words]
    assert len({tuple(word.get_bbox_patch().get_facecolor()) for word in text.texts}) == 12
    places = [word.get_position() for word in text.texts]
    lines = sorted({y for _, y in places}, reverse=True)
    assert len(lines) == 2 and places == sorted(places, key=lambda place: (-place[1], place[0]))
    assert all(x < 1 for x, _ in places)
    plot_visualness(SQUARE, [])


@each_row(("number", "shown"), [(3, [0, 1, 2, 37, 38, 39]), (20, range(40)), (100, range(40))])
def test_the_extremes_of_a_table_of_words_are_shown(number, shown):
    table = [(f"word{place}", 1 - place / 40, 50 - place, 0.05) for place in range(40)]
    [axes] = plot_visual_words(table, number).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == [f"word{n} ({50 - n})" for n in shown]
    assert [bar.get_width() for bar in axes.patches] == pytest.approx([1 - n / 40 for n in shown])


def test_saved_figures_are_whole_and_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    figure = plot_contact_sheet([SQUARE], ["a square"], "squares")
    for name in ("figure.png", "new/figure.pdf"):
        path = save_figure(figure, tmp_path / name)
        assert path.stat().st_size > 1000 and [file.name for file in path.parent.iterdir()] == [path.name]
    before = path.read_bytes()

    def break_off(file, **options):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", break_off)
    with pytest.raises(OSError, match="disk full"):
        save_figure(figure, path)
    assert path.read_bytes() == before and [file.name for file in path.parent.iterdir()] == ["figure.pdf"]


def test_a_missing_matplotlib_is_one_sentence(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingPlotsError, match=r"hf-ngsan\[plots\]"):
        plot_contact_sheet([SQUARE], ["a square"], "squares")
