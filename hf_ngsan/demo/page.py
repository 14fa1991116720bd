"""The steps of `hf-ngsan demo`, each of which becomes a part of one page: scenes, their relations, photographs, search.

```python
main("runs/demo")  # writes runs/demo/index.html
```
"""

import base64
import io
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import torch
from PIL import Image

from ..data import draw_scene, load_data
from ..io.files import check_place, write_text_atomically
from ..io.packaged import CAPTIONER, CAPTIONERS_OF_SCENES, DUAL_ENCODER, installed_photographs
from ..loading.models import find_model_folder, load_model
from ..models.image_processing_captioning import load_image
from ..tasks.retrieval_search import embed_images, embed_texts
from .scenes import Captioner, Described, describe, load_captioners_of_scenes, relation_accuracy, scene_to_change
from .training import CHANCE, calm_logs

NUM_SCENES = 100
NUM_DRAWINGS = 11
"""Drawings of scenes that are searched together with the photographs: 16 images in all, as for [`NOTHING_FITS`]."""
QUERIES = ("a lion on a rock", "an old woman in a uniform", "a tower", "two boys play football in the snow")
"""Chosen before any was searched for; nothing fits the last one."""
SCENE_SIDE, PHOTOGRAPH_SIDE, THUMBNAIL_SIDE = 480, 480, 200
"""Longest sides of pictures in pixels; screens with several dots a pixel show them smaller."""
TEMPLATE = Path(__file__).with_name("page.html.jinja")

FUNCTION_WORDS = frozenset(
    """a an the this that these those some his her its their he she it they who which is are was were be been being has
    have had and or but while as in on at of to by for from with without into onto over under up down out off through
    across along around behind beside between near next against towards front back there""".split()  # noqa: SIM905
)
"""Words that show nothing, so that a map of their attention says nothing either."""
SURE = 0.5
"""Confidence from which a caption counts as sure: more likely than not it is as good as the better half of those of the
calibration."""
MAP_SIDE = 200
"""Longest side in pixels of an attention map."""
NOTHING_FITS = 0.394
"""Similarity below which no image fits a query. On Flickr8k's validation split, the best of 16 photographs that a
caption does not describe reaches it as often as the caption's own photograph does not: 22 times in 100
(`python benchmarks/search_threshold.py`)."""
DARKEST = 0.25
"""Brightness of a photograph where a word has no attention."""
BRIGHT_SHARE = 0.05
"""Share of a photograph that has its full brightness, where the attention of a word is largest."""


@dataclass(frozen=True)
class Captioned:
    """A photograph with its caption.

    Attributes:
        name: name of the file.
        image: the photograph, upright.
        caption: the caption.
        confidence: see [`~hf_ngsan.loading.confidence.Judgement`].
        is_unlike: whether the photograph is unlike the training images.
        looked: pairs of a content word and the photograph, bright where the captioner looked for the word.
    """

    name: str
    image: Image.Image
    caption: str
    confidence: float
    is_unlike: bool
    looked: list[tuple[str, Image.Image]]

    @property
    def is_sure(self) -> bool:
        return self.confidence >= SURE and not self.is_unlike


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
    """Captions photographs with the packaged captioner, and tells those of which it is sure from the others.

    Raises:
        MissingBackboneError: the weights of the packaged models (extra `photos`) are not installed.
    """
    from transformers import pipeline

    captioner = pipeline("image-to-text", model=find_model_folder(CAPTIONER))  # type: ignore[call-overload]
    options = {"return_attention": True, "return_confidence": True, "attention_side": MAP_SIDE}
    photographs = []
    for file, [answer] in zip(files, captioner([str(file) for file in files], **options), strict=True):
        looked = [
            (word, lit(answer["image"], weights))
            for word, weights in zip(answer["words"], answer["attention"], strict=True)
            if word not in FUNCTION_WORDS
        ]
        words, confidence, is_unlike = answer["generated_text"], answer["confidence"], answer["unlike_training"]
        photographs.append(Captioned(file.name, load_image(file), words, confidence, is_unlike, looked))
    photographs.sort(key=lambda photograph: (photograph.is_unlike, -photograph.confidence))
    print(f"Captions of photographs by {CAPTIONER}:")
    for photograph in photographs:
        unlike = ", unlike its training" if photograph.is_unlike else ""
        print(f"  {photograph.name}: {photograph.caption} ({photograph.confidence:.0%} sure{unlike})")
    return {
        "sure": [photograph for photograph in photographs if photograph.is_sure],
        "unsure": [photograph for photograph in photographs if not photograph.is_sure],
    }


def searched(images: Mapping[str, Image.Image], top_k: int = 3) -> list[dict[str, Any]]:
    """Searches named images by words with the packaged dual encoder; returns hits, and whether one fits, of each query.

    Raises:
        MissingBackboneError: the weights of the packaged models (extra `photos`) are not installed.
    """
    model, processor = load_model(DUAL_ENCODER, "retrieval")
    rows: list[dict[str, Any]] = [{"image": image} for image in images.values()]
    similarities = embed_texts(model, processor, QUERIES) @ embed_images(model, processor, rows).T
    names, searches = list(images), []
    print(f"Searches among {len(images)} images:")
    for query, of_images in zip(QUERIES, similarities, strict=True):
        nearest = np.argsort(-of_images, kind="stable")[:top_k]
        hits = [(names[place], images[names[place]], float(of_images[place])) for place in nearest]
        name, _, best = hits[0]
        fits = best >= NOTHING_FITS
        print(f"  {query}: " + (f"{name} ({best:.2f})" if fits else f"nothing is near enough; {name} has {best:.2f}"))
        searches.append({"query": query, "fits": fits, "hits": hits})
    return searches


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


def copy_photographs(folder: Path) -> list[Path]:
    """Copies the photographs that installed packages bring into a folder; returns their files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in installed_photographs().items():
        if not (folder / f"{name}.jpg").exists():
            shutil.copyfile(file, folder / f"{name}.jpg")
    return sorted(folder.glob("*.jpg"))


def lit(image: Image.Image, weights: np.ndarray) -> Image.Image:
    """Returns a photograph that is bright where the weights `(height, width)` are large, and dark elsewhere."""
    large = max(float(np.quantile(weights, 1 - BRIGHT_SHARE)), 1e-12)
    light = DARKEST + (1 - DARKEST) * np.clip(weights / large, 0, 1)[..., None]
    return Image.fromarray((np.asarray(image.convert("RGB")) * light).astype(np.uint8))
