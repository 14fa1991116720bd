"""Draws photographs side by side with their captions below them.

    python examples/caption_sheet.py sheet.jpg photo.jpg another.jpg

The default captioner is the packaged one. The figure needs the extra plots.
"""

import argparse
import textwrap

from matplotlib.figure import Figure
from PIL import Image, ImageOps
from transformers import pipeline

import hf_ngsan  # noqa: F401  # registers the models with transformers
from hf_ngsan.io.packaged import CAPTIONER
from hf_ngsan.loading import find_model_folder
from hf_ngsan.visualization import save_figure

SIDE = 480
"""Longest side of a photograph in the figure, in pixels."""
WIDTH = 26
"""Characters in a line of a caption."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sheet", help="file to write: .jpg, .png, .pdf, ...")
    parser.add_argument("photographs", nargs="+", metavar="photograph")
    parser.add_argument("--model", default=CAPTIONER, help="captioner that reads images (%(default)s)")
    options = parser.parse_args()

    captioner = pipeline("image-to-text", model=find_model_folder(options.model))
    captions = [answer[0]["generated_text"] for answer in captioner(options.photographs)]
    figure = Figure((2.4 * len(captions), 2.9), dpi=130, layout="constrained")
    panels = figure.subplots(1, len(captions), squeeze=False)[0]
    for panel, file, caption in zip(panels, options.photographs, captions, strict=True):
        with Image.open(file) as photograph:
            panel.imshow(ImageOps.pad(photograph.convert("RGB"), (SIDE, SIDE), color="white"))
        panel.set_axis_off()
        panel.set_title("\n".join(textwrap.wrap(caption, WIDTH)), y=-0.06, va="top", fontsize=10)
        print(f"{file}\t{caption}")
    save_figure(figure, options.sheet)


if __name__ == "__main__":
    main()
