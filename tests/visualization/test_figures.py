"""Figures: their content, files that are whole or absent, and errors without matplotlib."""

import subprocess
import sys

import numpy
import pytest
from matplotlib.colors import to_hex
from matplotlib.offsetbox import AnnotationBbox, TextArea
from matplotlib.patches import Rectangle
from PIL import Image

from hf_ngsan.visualization import WordAttention, plot_caption, plot_words, save_figure
from hf_ngsan.visualization.plots import ACCENT
from tests.tables import each_row

WORDS = ["the", "red", "circle", "lies", "left", "of", "the", "blue", "square"]
BOXES = numpy.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.0, 0.9, 0.25], [0.4, 0.6, 0.6, 0.9]])
IMAGE = Image.new("RGB", (200, 100), "white")


@pytest.fixture
def attention():
    weights = numpy.random.default_rng(0).dirichlet([1, 1, 1], size=len(WORDS)).astype(numpy.float32)
    weights[4] = [0.7, 0.2, 0.1]
    return WordAttention(WORDS, weights)


def rectangles(panel):
    return [patch for patch in panel.patches if isinstance(patch, Rectangle)]


def test_caption_figure_has_the_boxes_and_the_weights_of_one_word(attention):
    figure = plot_caption(IMAGE, BOXES, attention, "left", ["red circle", "green star", "blue square"])
    _, picture, attended = figure.axes
    assert [text.get_text() for text in picture.texts] == ["red circle", "green star", "blue square"]
    assert [text.get_text() for text in attended.texts] == ["10%", "20%", "70%"]  # the heaviest on top
    assert attended.get_title() == "attention of “left”"
    numpy.testing.assert_allclose(
        [(*patch.get_xy(), patch.get_width(), patch.get_height()) for patch in rectangles(picture)],
        [[20, 20, 40, 20], [100, 0, 80, 25], [80, 60, 40, 30]],
    )
    opacity = [patch.get_facecolor()[3] for patch in rectangles(attended)]
    numpy.testing.assert_allclose(numpy.array(opacity) / opacity[-1], [1 / 7, 2 / 7, 1], rtol=1e-5)


@each_row("word", ["left", 4, -5])
def test_the_word_stands_out_in_the_caption(attention, word):
    [block] = [
        artist
        for artist in plot_caption(IMAGE, BOXES, attention, word).axes[0].artists
        if isinstance(artist, AnnotationBbox)
    ]
    areas = block.offsetbox.findobj(TextArea)
    assert [area.get_text() for area in areas] == WORDS
    assert [area.get_text() for area in areas if to_hex(area._text.get_color()) == ACCENT] == ["left"]


def test_long_captions_take_several_lines(attention):
    words = WordAttention(WORDS * 3, numpy.tile(attention.weights, (3, 1)))
    block = plot_caption(IMAGE, BOXES, words, 0).axes[0].artists[0].offsetbox
    assert len(block.get_children()) == 3


def test_words_figure_has_a_panel_for_each_word(attention):
    figure = plot_words(numpy.asarray(IMAGE), BOXES, attention)
    shown = [panel for panel in figure.axes if panel.axison]
    assert [panel.get_title() for panel in shown] == WORDS
    assert all(len(rectangles(panel)) == len(BOXES) for panel in shown)


@each_row("name", ["figure.png", "new/figure.pdf"])
def test_saved_figures_are_whole(attention, tmp_path, name):
    path = save_figure(plot_caption(IMAGE, BOXES, attention, "left"), tmp_path / name)
    assert path.stat().st_size > 1000
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    if path.suffix == ".png":
        with Image.open(path) as picture:
            assert picture.size == (1260, 705)


def test_a_failed_save_leaves_the_old_file(attention, tmp_path, monkeypatch):
    path = save_figure(plot_words(IMAGE, BOXES, attention), tmp_path / "figure.png")
    before = path.read_bytes()
    figure = plot_words(IMAGE, BOXES, attention)

    def break_off(file, **options):
        file.write(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(figure, "savefig", break_off)
    with pytest.raises(OSError, match="disk full"):
        save_figure(figure, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["figure.png"]


def test_what_does_not_belong_together_is_named(attention):
    for named, boxes, names in (("weights", BOXES[:2], None), ("names", BOXES, ["star"])):
        with pytest.raises(ValueError, match=named):
            plot_caption(IMAGE, boxes, attention, "left", names)
    with pytest.raises(ValueError, match="4, 3"):
        plot_words(IMAGE, BOXES.T, attention)
    with pytest.raises(ValueError, match="words"):
        plot_words(IMAGE, BOXES, WordAttention([], numpy.zeros((0, 3), numpy.float32)))


@pytest.mark.slow
def test_importing_is_light_and_a_missing_matplotlib_is_one_sentence():
    code = (
        "import sys\nimport hf_ngsan.visualization as visualization\n"
        "assert 'matplotlib' not in sys.modules\n"
        "assert not [name for name in dir(visualization) if name.startswith('plot_')] == []\n"
        "sys.modules['matplotlib'] = None\n"
        "try:\n    visualization.check_matplotlib()\n"
        "except visualization.MissingPlotsError as error:\n    print(error)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "hf-ngsan[plots]" in result.stdout
    assert not result.stderr
