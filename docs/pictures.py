"""Draws the pictures of the documentation, from files of the package and its extras.

    python docs/pictures.py                        # all of them: a quarter of an hour on one CPU thread
    python docs/pictures.py heads package_map      # some of them

It needs the extras `photos`, `plots` and `demo`; `app` also needs selenium, chromium and chromedriver. The photographs
are those of `hf-ngsan demo`. Captioners of synthetic scenes are trained into runs/pictures, unless they are there.
"""

import argparse
import ast
import io
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from PIL import Image
from transformers import pipeline

import hf_ngsan
from hf_ngsan.cli import main as hf_ngsan_command
from hf_ngsan.data import draw_scene, load_data
from hf_ngsan.data.scenes.relations import DIRECTIONAL, FAMILY_OF
from hf_ngsan.demo.page import Sentence, copy_photographs, describe, load_captioners_of_scenes, scene_to_change
from hf_ngsan.io.files import write_file_atomically
from hf_ngsan.io.packaged import CAPTIONER, DUAL_ENCODER
from hf_ngsan.loading.models import load_captioner
from hf_ngsan.tasks.captioning_analysis import captions_with_visualness
from hf_ngsan.visualization import plot_geometric_bias, plot_visualness, plot_word_maps
from hf_ngsan.visualization.figures import ACCENT, INK, QUIET, new_figure, show_image

DOCS = Path(__file__).resolve().parent
RUNS = Path("runs", "pictures")
MAX_BYTES, MAX_WIDTH = 200_000, 1000
PICTURES: dict[str, Callable[[], Figure | Image.Image]] = {}
SENTENCE = "a lion lies on a rock"
RIGHT, WRONG = "#1a7a3c", "#b3261e"
QUERY_CELL, SIDE_OF_GRID = (3, 5), 11
"""Row and column of the cell that geometry is shown for: the middle of the lion's head."""
MOTORCYCLE = {  # boxes in pixels, drawn by hand: x1, y1, x2, y2
    "motorcycle": (63, 50, 442, 293),
    "bench": (27, 69, 185, 200),
    "shelf": (217, 0, 467, 188),
    "bicycle": (0, 12, 32, 149),
    "door": (115, 0, 195, 110),
    "box": (341, 19, 393, 65),
    "toolbox": (337, 118, 401, 164),
    "seat": (97, 103, 231, 166),
    "wheel": (331, 190, 442, 293),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(PICTURES)} (all of them)")
    parser.add_argument("--output", type=Path, default=DOCS, help="folder to write to (%(default)s)")
    options = parser.parse_args()
    unknown = {*options.names} - PICTURES.keys()
    if unknown:
        parser.error(f"there is no picture {', '.join(sorted(unknown))}; there are {', '.join(PICTURES)}")
    for name in options.names or PICTURES:
        print(write_picture(PICTURES[name](), options.output, name))


def picture(draw: Callable[[], Figure | Image.Image]) -> Callable[[], Figure | Image.Image]:
    PICTURES[draw.__name__] = draw
    return draw


def write_picture(drawn: Figure | Image.Image, folder: Path, name: str) -> Path:
    """Writes a picture as the smaller one of a JPEG file and of a PNG file with 256 colours.

    Raises:
        ValueError: both are larger than MAX_BYTES.
    """
    image = drawn if isinstance(drawn, Image.Image) else rendered(drawn)
    image = image.convert("RGB")
    image.thumbnail((MAX_WIDTH, 10 * MAX_WIDTH), Image.Resampling.LANCZOS)
    files = {".jpg": io.BytesIO(), ".png": io.BytesIO()}
    image.save(files[".jpg"], "JPEG", quality=85, optimize=True, progressive=True)
    image.quantize(256, dither=Image.Dither.NONE).save(files[".png"], "PNG", optimize=True)
    suffix, smaller = min(files.items(), key=lambda item: item[1].tell())
    if smaller.tell() > MAX_BYTES:
        raise ValueError(f"{name} has {smaller.tell():,} bytes; a picture may have {MAX_BYTES:,}.")
    for other in files:
        (folder / f"{name}{other}").unlink(missing_ok=True)
    target = folder / f"{name}{suffix}"
    write_file_atomically(target, lambda file: file.write(smaller.getvalue()))
    return target


def rendered(figure: Figure) -> Image.Image:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return Image.open(file)


def photograph(name: str) -> Path:
    """Returns the file of a photograph of the demo, copied into the folder of the runs."""
    photographs = {file.stem: file for file in copy_photographs(RUNS / "photographs")}
    if name not in photographs:
        raise FileNotFoundError(f"{name}.jpg comes with gradio or matplotlib; install the extras demo and plots.")
    return photographs[name]


def trained(config: str, *changes: str) -> Path:
    """Returns the folder of a training run of a packaged config, which is trained unless it is finished."""
    folder = RUNS / config.replace("/", "-")
    if not (folder / "best").is_dir():
        shutil.rmtree(folder, ignore_errors=True)
        code = hf_ngsan_command(["train", "--config", config, *changes, f"training.output_dir={folder}"])
        if code:
            raise SystemExit(code)
    return folder


@picture
def scene_comparison() -> Figure:
    """What the packaged captioners of scenes say of two directions, before and after two objects change places."""
    rows = [dict(row) for row in load_data("scenes:size=1,validation=1,test=100", "test")]
    captioners = load_captioners_of_scenes()
    row, swap = scene_to_change(rows)
    figure = new_figure(8.4, 4.6)
    panels = figure.subplots(2, 2, height_ratios=[3, 1.25])
    for scene, title, (drawing, table) in zip(
        (row, {**row, "visual_boxes": swap.boxes}), ("a scene", "two objects exchanged"), panels.T, strict=True
    ):
        show_image(drawing, draw_scene(scene, 480))
        drawing.set_title(title, fontsize=11, color=INK)
        table.set_axis_off()
        sentences = [line for line in describe(captioners, scene).sentences if prompt_group(line) == DIRECTIONAL]
        for column, sentence in enumerate(sentences):
            left, words = 0.34 + 0.36 * column, "\n".join(sentence.beginning.rsplit(" ", 1)) + " …"
            table.text(left, 0.78, words, fontsize=9, color=QUIET, transform=table.transAxes)
            for line, (name, answer) in enumerate(sentence.answers.items()):
                height = 0.45 - 0.27 * line
                table.text(-0.01, height, name, fontsize=9.5, color=INK, transform=table.transAxes)
                mark, colour = ("✓", RIGHT) if answer.is_true else ("✗", WRONG)
                table.text(left, height, f"{mark} {answer.text}", fontsize=9.5, color=colour, transform=table.transAxes)
    return figure


def prompt_group(sentence: Sentence) -> str:
    [answer, *_] = sentence.answers.values()
    return FAMILY_OF[answer.text].group


@picture
def word_attention() -> Figure:
    """The attention of each word of the packaged captioner's caption."""
    with Image.open(photograph("officer")) as image:
        captioner = pipeline("image-to-text", model=hf_ngsan.packaged_model(CAPTIONER))  # type: ignore[call-overload]
        [answer] = captioner(image, return_attention=True)
        return plot_word_maps(image, answer["words"], answer["attention"])


@picture
def geometric_bias() -> Figure:
    """What geometry adds to the attention of one cell of a photograph, by layer and head of the packaged captioner."""
    model, processor = load_captioner(CAPTIONER)
    with Image.open(photograph("lion")) as opened:
        image = opened.convert("RGB")
    return plot_geometric_bias(model, processor, image, QUERY_CELL[0] * SIDE_OF_GRID + QUERY_CELL[1])


@picture
def geometric_bias_of_regions() -> Figure:
    """The same of a region among others, boxes that were drawn by hand, of the packaged captioner's first layer."""
    model, processor = load_captioner(CAPTIONER)
    model.get_encoder().layers = model.get_encoder().layers[:1]
    with Image.open(photograph("motorcycle")) as opened:
        image = opened.convert("RGB")
    boxes = np.array([*MOTORCYCLE.values()], dtype=np.float32)
    return plot_geometric_bias(model, processor, image, boxes=boxes, names=[*MOTORCYCLE])


@picture
def heads() -> Image.Image:
    """The attention map of each head of the packaged dual encoder, over a photograph and a sentence."""
    file = RUNS / "heads.png"
    command = ["explain", "--model", DUAL_ENCODER, str(photograph("lion")), SENTENCE, "--figure", str(file)]
    if code := hf_ngsan_command(command):
        raise SystemExit(code)
    return Image.open(file)


@picture
def visualness() -> Figure:
    """The visualness of each word of a caption, by an RSTNet of synthetic scenes."""
    language_model = trained("rstnet/scenes_language_model")
    run = trained("rstnet/scenes", f"model.pretrained_language_model={language_model}")
    model, processor = load_captioner(run)
    rows = load_data("scenes:size=1,validation=1,test=1,images=true", "test")
    [words] = captions_with_visualness(model, processor, rows, batch_size=1, num_beams=3, max_new_tokens=12)
    return plot_visualness(rows[0]["image"], words)


@picture
def app() -> Image.Image:
    """The page of `hf-ngsan app`, with a photograph, its captions, and where one word looked."""
    from selenium.webdriver import ActionChains

    with served_page() as url, chromium() as browser:
        browser.get(url)
        shown(browser, "#caption")
        shown(browser, "input[type=file]", displayed=False).send_keys(str(photograph("motorcycle").resolve()))
        words = shown(browser, "#captions .best") and browser.find_elements("css selector", "#captions .best .word")
        [noun, *_] = [word for word in words if len(word.text) > 3]
        ActionChains(browser).move_to_element(noun).pause(1).perform()
        return Image.open(io.BytesIO(browser.get_screenshot_as_png()))


@contextmanager
def served_page() -> Iterator[str]:
    """Starts `hf-ngsan app` and gives its URL; ends it afterwards."""
    command = [sys.executable, "-m", "hf_ngsan.cli", "app"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        match = re.search(r"http://\S+", process.stdout.readline() if process.stdout else "")
        try:
            if match is None:
                raise RuntimeError("hf-ngsan app has not started; run it alone to see why.")
            yield match[0]
        finally:
            process.send_signal(signal.SIGINT)


@contextmanager
def chromium() -> Iterator[Any]:
    """Gives a headless browser."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1000,900",
    ):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver") or ""))
    try:
        yield browser
    finally:
        browser.quit()


def shown(browser: Any, selector: str, displayed: bool = True) -> Any:
    """Returns the first element of a page that a selector finds, once it is there."""
    from selenium.webdriver.support.ui import WebDriverWait

    def first(_: Any) -> Any:
        elements = browser.find_elements("css selector", selector)
        return next((element for element in elements if element.is_displayed() or not displayed), None)

    return WebDriverWait(browser, 180).until(first)


@picture
def package_map() -> Figure:
    """The packages of hf_ngsan, each above what it imports; lines that follow from others are left out."""
    imports = imports_of_packages()
    heights: dict[str, int] = {}
    for name in TopologicalSorter(imports).static_order():
        heights[name] = 1 + max((heights[other] for other in imports[name]), default=-1)
    rows = [[name for name in imports if heights[name] == height] for height in range(1 + max(heights.values()))]
    places: dict[str, tuple[float, int]] = {}
    for height, row in enumerate(rows):
        middles = {name: float(np.mean([places[other][0] for other in sorted(imports[name])] or [0])) for name in row}
        for number, name in enumerate(sorted(row, key=lambda key: (middles[key], key))):
            places[name] = (number - (len(row) - 1) / 2, height)
    figure = new_figure(8.4, 0.62 * len(rows) + 0.2)
    axes = figure.subplots()
    axes.set_axis_off()
    axes.set_xlim(-3.2, 3.2)
    axes.set_ylim(-0.5, len(rows) - 0.5)
    for name, below in imports.items():
        implied = {further for other in below for further in everything_below(other, imports)}
        for other in sorted(below - implied):
            (x, y), (x2, y2) = places[name], places[other]
            axes.annotate(
                "",
                (x2, y2 + 0.2),
                (x, y - 0.2),
                arrowprops={"arrowstyle": "-|>", "color": QUIET, "linewidth": 0.8, "shrinkA": 0, "shrinkB": 0},
            )
    for name, (x, y) in places.items():
        box = FancyBboxPatch(
            (x - 0.4, y - 0.2), 0.8, 0.4, "round,pad=0,rounding_size=0.08", fc="#fff7ed", ec=ACCENT, zorder=3
        )
        axes.add_patch(box)
        axes.text(x, y, name, ha="center", va="center", fontsize=9, color=INK, zorder=4)
    return figure


def everything_below(name: str, imports: dict[str, set[str]]) -> set[str]:
    return imports[name] | {further for other in imports[name] for further in everything_below(other, imports)}


def imports_of_packages() -> dict[str, set[str]]:
    """Returns the folders and top files of the package, each with those that it imports, read from the code."""
    root = Path(hf_ngsan.__file__).parent
    imports: dict[str, set[str]] = {}
    for file in sorted(root.rglob("*.py")):
        inside = file.relative_to(root)
        name = inside.with_suffix("").parts[0]
        if name == "__init__":
            continue
        packages = imports.setdefault(name, set())
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for_types = {inner for node in ast.walk(tree) if isinstance(node, ast.If) for inner in typing_only(node)}
        for node in {*ast.walk(tree)} - for_types:
            if isinstance(node, ast.ImportFrom) and node.level == len(inside.parts):
                packages |= {node.module.split(".")[0]} if node.module else {alias.name for alias in node.names}
    return {name: {other for other in below if other in imports and other != name} for name, below in imports.items()}


def typing_only(node: ast.If) -> Iterator[ast.AST]:
    """The statements of `if TYPE_CHECKING`, which do not run."""
    if ast.unparse(node.test) == "TYPE_CHECKING":
        for statement in node.body:
            yield from ast.walk(statement)


if __name__ == "__main__":
    main()
