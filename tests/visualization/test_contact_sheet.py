"""Contact sheets: a panel for each image, whatever its label."""

import pytest
from PIL import Image

from hf_ngsan.visualization import plot_contact_sheet, save_figure
from tests.tables import each_row

SQUARE = Image.new("RGB", (20, 20), "red")


@each_row(("number", "panels"), [(1, 1), (3, 3), (4, 6)])
def test_every_image_has_a_panel(number, panels):
    labels = [f"{place}.jpg" for place in range(number)]
    figure = plot_contact_sheet([SQUARE] * number, labels, "red squares")
    titles = [panel.get_title() for panel in figure.axes]
    assert titles[:number] == labels and not any(titles[number:]) and len(titles) == panels
    assert [len(panel.images) for panel in figure.axes[:number]] == [1] * number
    assert figure.get_suptitle() == "red squares"


def test_an_image_without_a_thumbnail_and_names_that_are_no_formulas(tmp_path):
    names = ["a$b$_{", "x" * 100, "line\nbreak \x07"]
    figure = plot_contact_sheet([None, SQUARE, SQUARE.convert("L")], names, "$\\frac$")
    save_figure(figure, tmp_path / "sheet.png")
    titles = [panel.get_title() for panel in figure.axes]
    assert titles[0] == names[0] and len(titles[1]) < 40 and titles[2] == "line?break ?"
    assert not figure.axes[0].images


@each_row(("images", "labels"), [([], []), ([SQUARE], [])])
def test_images_and_labels_go_together(images, labels):
    with pytest.raises(ValueError, match="labels"):
        plot_contact_sheet(images, labels)
