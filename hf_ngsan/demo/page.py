"""The steps of `hf-ngsan demo`, each of which becomes a part of one page: scenes, their relations, photographs, search.

```python
main("runs/demo")  # writes runs/demo/index.html
```
"""

import base64
import io
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import torch
from PIL import Image

from ..data import draw_scene, load_data
from ..io.files import check_place, write_text_atomically
from ..io.packaged import CAPTIONER, CAPTIONERS_OF_SCENES, DUAL_ENCODER
from ..models.image_processing_captioning import load_image
from .photographs import NOTHING_FITS, SURE, Captioned, caption_photographs, copy_photographs, find_images
from .runs import CHANCE, calm_logs
from .scenes import Captioner, Described, describe, load_captioners_of_scenes, relation_accuracy, scene_to_change

NUM_SCENES = 100
NUM_DRAWINGS = 11
"""Drawings of scenes that are searched together with the photographs: 16 images in all, as for [`NOTHING_FITS`]."""
QUERIES = ("a lion on a rock", "an old woman in a uniform", "a tower", "two boys play football in the snow")
"""Chosen before any was searched for; nothing fits the last one."""
SCENE_SIDE, PHOTOGRAPH_SIDE, THUMBNAIL_SIDE = 480, 480, 200
"""Longest sides of pictures in pixels; screens with several dots a pixel show them smaller."""
TEMPLATE = Path(__file__).with_name("page.html.jinja")


def main(output: str | Path = "runs/demo", seed: int = 0, num_scenes: int = NUM_SCENES) -> int:
    """Captions synthetic scenes and photographs with the packaged models, and writes what they say onto one page.

    `output` gets `index.html`, which has all of its pictures inside, and `photographs/`.

    Args:
        output: the folder.
        seed: seed of the scenes, of the test split: no captioner was trained on them.
        num_scenes: scenes whose relations are counted.

    Returns:
        The exit code 0.

    Raises:
        OSError: the folder is a file, or cannot be written to.
        MissingBackboneError: the weights of the packaged models of photographs (extra `photos`) are not installed.
    """
    began, output = time.monotonic(), Path(output)
    check_place(output / "index.html")
    with calm_logs(), one_thread():
        rows = load_data(f"scenes:size=1,validation=1,test={num_scenes},seed={seed}", "test")
        captioners = load_captioners_of_scenes()
        scenes = two_scenes(captioners, [dict(row) for row in rows])
        accuracy = accuracy_of_relations(captioners, rows)
        files = copy_photographs(output / "photographs")
        photographs = captions_of_photographs(files)
        images = {file.name: load_image(file) for file in files}
        searches = searched(images | {f"scene {number}": draw_scene(row) for number, row in enumerate(drawn(rows), 1)})
    page = render(
        scenes=scenes,
        accuracy=accuracy,
        num_scenes=num_scenes,
        chance=CHANCE,
        photographs=photographs,
        searches=searches,
        models={"captioner": CAPTIONER, "dual_encoder": DUAL_ENCODER, **CAPTIONERS_OF_SCENES},
        sure=SURE,
        nothing_fits=NOTHING_FITS,
        num_images=len(files) + len(drawn(rows)),
    )
    write_text_atomically(output / "index.html", page)
    print(f"All of it, with pictures ({time.monotonic() - began:.0f} s): {output / 'index.html'}")
    return 0


@contextmanager
def one_thread() -> Iterator[None]:
    """Lets torch compute on one thread: so small models are no faster on several, and far slower on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def two_scenes(captioners: Mapping[str, Captioner], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Describes a scene by every captioner, and again after two of its objects have changed places."""
    row, swap = scene_to_change(rows)
    before, after = describe(captioners, row), describe(captioners, {**row, "visual_boxes": swap.boxes})
    places = zip(row["objects"], np.asarray(row["visual_boxes"], np.float32), swap.boxes, strict=True)
    moved = [name for name, box, other in places if (box != other).any()]
    print(f"A scene, and again with the {' and the '.join(moved)} exchanged; true relations:")
    for name in captioners:
        print(f"  {name:14} {right(before, name)}   after the exchange {right(after, name)}")
    return {"before": before, "after": after, "moved": moved}


def drawn(rows: Any) -> Any:
    """Returns the scenes that are searched."""
    return rows.select(range(min(NUM_DRAWINGS, len(rows))))


def right(scene: Described, name: str) -> str:
    """Returns the number of right sentences of a captioner, for example "4 of 5"."""
    return f"{sum(bool(one.answers[name].is_true) for one in scene.sentences)} of {len(scene.sentences)}"


def accuracy_of_relations(captioners: Mapping[str, Captioner], rows: Any) -> dict[str, dict[str, float]]:
    """Counts right relations; chance is a half."""
    accuracy = relation_accuracy(captioners, rows)
    print(f"Right relations on {len(rows)} scenes, chance {CHANCE:.0%}:")
    for name, of_groups in accuracy.items():
        print(f"  {name:14} " + "   ".join(f"{group} {share:.0%}" for group, share in of_groups.items()))
    return accuracy


def captions_of_photographs(files: Sequence[Path]) -> dict[str, list[Captioned]]:
    """Captions photographs, and tells those of which the captioner is sure from the others."""
    found = caption_photographs(files)
    print(f"Captions of photographs by {CAPTIONER}:")
    for one in found:
        unlike = ", unlike its training" if one.is_unlike else ""
        print(f"  {one.name}: {one.caption} ({one.confidence:.0%} sure{unlike})")
    return {
        "sure": [one for one in found if one.is_sure],
        "unsure": [one for one in found if not one.is_sure],
    }


def searched(images: Mapping[str, Image.Image]) -> list[dict[str, Any]]:
    """Searches named images by words."""
    names, searches = list(images), find_images([*images.values()], QUERIES)
    print(f"Searches among {len(images)} images:")
    shown = []
    for one in searches:
        hits = [(names[place], images[names[place]], score) for place, score in one.hits]
        name, _, best = hits[0]
        verdict = f"{name} ({best:.2f})" if one.fits else f"nothing is near enough; {name} has {best:.2f}"
        print(f"  {one.query}: {verdict}")
        shown.append({"query": one.query, "fits": one.fits, "hits": hits})
    return shown


def render(**parts: Any) -> str:
    """Returns the page, with pictures inside and without scripts."""
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters |= {
        "scene": lambda row: data_url(draw_scene(row, SCENE_SIDE), "PNG", SCENE_SIDE),
        "photograph": lambda image: data_url(image, "JPEG", PHOTOGRAPH_SIDE),
        "thumbnail": lambda image: data_url(image, "JPEG", THUMBNAIL_SIDE),
    }
    return environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(**parts)


def data_url(image: Image.Image, file_format: str, side: int) -> str:
    """Returns a picture, at most `side` pixels wide and high, as a URL that holds it."""
    shown, file = image.convert("RGB"), io.BytesIO()
    shown.thumbnail((side, side))
    if file_format == "PNG":
        shown.quantize(64).save(file, file_format, optimize=True)
    else:
        shown.save(file, file_format, quality=85)
    return f"data:image/{file_format.lower()};base64,{base64.b64encode(file.getvalue()).decode()}"
