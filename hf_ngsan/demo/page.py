"""The page of `hf-ngsan demo`: scenes with the relations that captioners state, photographs, and a search.

```python
main("runs/demo")  # writes runs/demo/index.html
```
"""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import jinja2
import numpy as np
import torch
from datasets import Dataset
from PIL import Image

from ..data import draw_scene, load_data
from ..data.scenes import Statement, relation_prompts, score_relation_completions
from ..data.scenes.relations import DIRECTIONAL, LANDMARK
from ..data.scenes.scoring import RelationSwap, answers_by_object, relation_swaps, true_relation
from ..io.files import check_place, write_text_atomically
from ..io.packaged import CAPTIONER, CAPTIONERS_OF_SCENES, DUAL_ENCODER, PHOTOGRAPHS, installed_photographs
from ..loading.calibration import SearchCalibration, read_search_calibration
from ..loading.models import find_model_folder, load_captioner, load_model, quiet_loading
from ..models.images import load_image
from ..tasks.captioning_generation import caption_batch, generate_captions
from ..tasks.retrieval_search import embed_images, embed_texts
from ..visualization.figures import data_url

NUM_SCENES = 100
CHANCE = 0.5  # accuracy of relations without geometry: both answers to a prompt are equally likely
NUM_IMAGES = 16  # number of photographs and drawings of scenes in the search, as in calibrations
QUERIES = {
    "a lion on a rock": "lion",
    "an old woman in a uniform": "officer",
    "a tower": "tower",
    "two boys play football in the snow": None,
}
"""Queries, and the available photographs that they describe; chosen before the first search."""
SCENE_SIDE, PHOTOGRAPH_SIDE, THUMBNAIL_SIDE, MAP_SIDE = 480, 480, 200, 200
"""Longest sides of pictures in pixels; screens with high pixel density show them smaller."""
TEMPLATE = Path(__file__).with_name("page.html.jinja")
FUNCTION_WORDS = frozenset(
    """a an the this that these those some his her its their he she it they who which is are was were be been being has
    have had and or but while as in on at of to by for from with without into onto over under up down out off through
    across along around behind beside between near next against towards front back there""".split()  # noqa: SIM905
)
SURE = 0.5
"""Confidence above which a caption is more likely than not as good as the better half of the calibration captions."""
DARKEST, BRIGHT_SHARE = 0.25, 0.05
"""Brightness of a photograph where a word has no attention, and the share of the photograph at full brightness."""
COMPLETION: dict[str, Any] = {"num_beams": 1, "length_penalty": None, "max_new_tokens": 6}
"""Arguments of `generate` for completing a caption that ends before its relation."""

Captioner = tuple[Any, Any]  # a model and its processor
Row = Mapping[str, Any]


class Answer(NamedTuple):
    """A caption or a relation that a captioner states; `is_true` is None if the scene does not decide it."""

    text: str
    is_true: bool | None


class Sentence(NamedTuple):
    """A caption that ends before its relation, and the completion by each captioner, by its name."""

    beginning: str  # e.g. the red circle lies
    end: str  # e.g. the blue square
    answers: dict[str, Answer]


class Described(NamedTuple):
    """A scene with the caption of each captioner, by its name, and the sentences whose relation the scene decides."""

    row: Row
    captions: dict[str, Answer]
    sentences: list[Sentence]


def main(output: str | Path = "runs/demo", seed: int = 0, num_scenes: int = NUM_SCENES) -> int:
    """Captions synthetic scenes and photographs with the packaged models, and writes the results onto one page.

    Args:
        output: folder for `index.html`, which includes all of its pictures, and for `photographs/`.
        seed: seed of the scenes. They come from the test split: no captioner was trained on them.
        num_scenes: number of scenes whose relations are counted.
    """
    began, output, threads = time.monotonic(), Path(output), torch.get_num_threads()
    check_place(output / "index.html")
    torch.set_num_threads(1)  # such small models are not faster with several threads, and far slower on a busy machine
    try:
        with quiet_loading():
            rows = load_data(f"scenes:size=1,validation=1,test={num_scenes},seed={seed}", "test")
            captioners = load_captioners_of_scenes()
            scenes = two_scenes(captioners, [dict(row) for row in rows])
            accuracy = relation_accuracy(captioners, rows)
            files = copy_photographs(output / "photographs")
            photographs = captions_of_photographs(files) if files else []
            images = {file.name: load_image(file) for file in files}
            drawn = rows.select(range(min(NUM_IMAGES - len(files), len(rows))))
            images |= {f"scene {number}": draw_scene(row) for number, row in enumerate(drawn, 1)}
            there = {None, *(file.stem for file in files)}
            searches = searched(images, [query for query, name in QUERIES.items() if name in there])
    finally:
        torch.set_num_threads(threads)
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["scene"] = lambda row: data_url(draw_scene(row, SCENE_SIDE).quantize(64), "PNG", optimize=True)
    environment.filters["photograph"] = lambda image: data_url(image, "JPEG", PHOTOGRAPH_SIDE, quality=85)
    environment.filters["thumbnail"] = lambda image: data_url(image, "JPEG", THUMBNAIL_SIDE, quality=85)
    page = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        scenes=scenes,
        accuracy=accuracy,
        num_scenes=num_scenes,
        chance=CHANCE,
        photographs=photographs,
        searches=searches,
        models={"captioner": CAPTIONER, "dual_encoder": DUAL_ENCODER, **CAPTIONERS_OF_SCENES},
        sure=SURE,
        calibration=search_calibration(),
        num_images=len(images),
        num_missing=len(PHOTOGRAPHS.keys() - there),
    )
    write_text_atomically(output / "index.html", page)
    if PHOTOGRAPHS.keys() - there:
        print('pip install "hf-ngsan[demo]" installs more photographs.')
    print(f"The page with all results and pictures ({time.monotonic() - began:.0f} s): {output / 'index.html'}")
    return 0


def load_captioners_of_scenes() -> dict[str, Captioner]:
    """Returns the packaged captioners of scenes by variant: SAN, NG-SAN and NG-SAN signed."""
    return {variant: load_captioner(name) for variant, name in CAPTIONERS_OF_SCENES.items()}


def two_scenes(captioners: Mapping[str, Captioner], rows: Sequence[Row]) -> dict[str, Any]:
    """Describes a scene with every captioner, before and after two of its objects change places."""
    row, swap = scene_to_change(rows)
    before, after = describe(captioners, row), describe(captioners, {**row, "visual_boxes": swap.boxes})
    places = zip(row["objects"], np.asarray(row["visual_boxes"], np.float32), swap.boxes, strict=True)
    moved = [name for name, box, other in places if (box != other).any()]
    print(f"Correct relations in a scene, before and after the {' and the '.join(moved)} change places:")
    for name in captioners:
        right = [[sentence.answers[name].is_true for sentence in scene.sentences] for scene in (before, after)]
        counts = [f"{scene_results.count(True)} of {len(scene_results)}" for scene_results in right]
        print(f"  {name:14} {counts[0]}, then {counts[1]}")
    return {"before": before, "after": after, "moved": moved}


def scene_to_change(rows: Sequence[Row]) -> tuple[Row, RelationSwap]:
    """Returns the scene and the exchange of two of its objects that reverse the most directions, such as left of.

    Neither object is the landmark to which the captions relate the others. Ties are broken by the fewest undecided
    captions. The choice depends on the true relations only, not on the output of a captioner.
    """

    def moves_landmark(row: Row, swap: RelationSwap) -> bool:
        landmark = [name.endswith(LANDMARK) for name in row["objects"]].index(True)
        return not np.array_equal(swap.boxes[landmark], np.asarray(row["visual_boxes"][landmark], np.float32))

    def turned_and_decided(row: Row, swap: RelationSwap) -> tuple[int, int]:
        changed = {**row, "visual_boxes": swap.boxes}
        truths = [true_relation_of(caption, changed) for caption in row["captions"]]
        pairs = [(prompt, truth) for prompt, truth in zip(relation_prompts(row), truths, strict=True) if truth]
        return sum(prompt.group == DIRECTIONAL and truth != prompt.answer for prompt, truth in pairs), len(pairs)

    swaps = [(row, swap) for row in rows for swap in relation_swaps(row) if not moves_landmark(row, swap)]
    return max(swaps, key=lambda pair: turned_and_decided(*pair))


def true_relation_of(caption: str, row: Row) -> str | None:
    """Returns the true relation for the one that a caption states; None if the scene does not decide it."""
    statement = Statement.parse(caption)
    return None if statement is None else true_relation(statement, list(row["objects"]), answers_by_object(row))


def judged(caption: str, shown: str, row: Row) -> Answer:
    truth, statement = true_relation_of(caption, row), Statement.parse(caption)
    return Answer(shown, None if truth is None or statement is None else statement.relation == truth)


def describe(captioners: Mapping[str, Captioner], row: Row) -> Described:
    """Captions a scene, and completes each of the scene's captions after the verb, with every captioner."""
    captions, sentences = {}, []
    for name, (model, processor) in captioners.items():
        [caption] = caption_batch(model, processor, [dict(row)])
        captions[name] = judged(caption, caption, row)
    for prompt in relation_prompts(row):
        if true_relation_of(prompt.caption, row) is None:
            continue
        end, answers = prompt.caption.removeprefix(f"{prompt.text} {prompt.answer} "), {}
        for name, (model, processor) in captioners.items():
            [finished] = caption_batch(model, processor, [dict(row)], [prompt.text], **COMPLETION)
            relation = finished.removeprefix(prompt.text).strip().removesuffix(end).strip()
            answers[name] = judged(f"{prompt.text} {relation} {end}", relation, row)
        sentences.append(Sentence(prompt.text, end, answers))
    return Described(row, captions, sentences)


def relation_accuracy(captioners: Mapping[str, Captioner], rows: Dataset) -> dict[str, dict[str, float]]:
    """Returns the share of right relations by captioner and by group (`symmetric`, `directional`); chance is 0.5."""
    references = [dict(row) for row in rows.select_columns("captions")]
    prompts = [[prompt.text for prompt in relation_prompts(row)] for row in references]
    asked = rows.select([number for number, texts in enumerate(prompts) for _ in texts])
    prefixes = [text for texts in prompts for text in texts]
    print(f"Correct relations on {len(rows)} scenes (chance is {CHANCE:.0%}):")
    accuracy = {}
    for name, (model, processor) in captioners.items():
        finished = iter(generate_captions(model, processor, asked, prefixes=prefixes, **COMPLETION))
        report = score_relation_completions([[next(finished) for _ in texts] for texts in prompts], references)
        accuracy[name] = {group: report[group] for group in ("symmetric", "directional")}
        print(f"  {name:14} " + "   ".join(f"{group} {share:.0%}" for group, share in accuracy[name].items()))
    return accuracy


def copy_photographs(folder: Path) -> list[Path]:
    """Copies example photographs of installed packages into a folder; returns its files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in installed_photographs().items():
        shutil.copyfile(file, folder / f"{name}.jpg")
    return sorted(folder.glob("*.jpg"))


def captions_of_photographs(files: Sequence[Path]) -> list[dict[str, Any]]:
    """Captions photographs with the packaged captioner; returns data for the page, sorted by descending confidence."""
    from transformers import pipeline

    captioner = pipeline("image-to-text", model=find_model_folder(CAPTIONER))  # type: ignore[call-overload]
    options = {"return_attention": True, "return_confidence": True, "attention_side": MAP_SIDE}
    photographs = []
    for file, [answer] in zip(files, captioner([str(file) for file in files], **options), strict=True):
        maps = zip(answer["words"], answer["attention"], strict=True)
        looked = [(word, lit(answer["image"], weights)) for word, weights in maps if word not in FUNCTION_WORDS]
        is_sure = answer["confidence"] >= SURE and not answer["unlike_training"]
        photographs.append(
            {**answer, "name": file.name, "image": load_image(file), "looked": looked, "is_sure": is_sure}
        )
    photographs.sort(key=lambda photograph: (photograph["unlike_training"], -photograph["confidence"]))
    print(f"Captions of photographs by {CAPTIONER}:")
    for photograph in photographs:
        unlike = ", unlike the training photographs" if photograph["unlike_training"] else ""
        caption, confidence = photograph["generated_text"], photograph["confidence"]
        print(f"  {photograph['name']}: {caption} (confidence {confidence:.0%}{unlike})")
    return photographs


def search_calibration() -> SearchCalibration:
    return cast(SearchCalibration, read_search_calibration(DUAL_ENCODER))


def searched(images: Mapping[str, Image.Image], queries: Sequence[str], top_k: int = 3) -> list[dict[str, Any]]:
    """Searches images by text with the packaged dual encoder; returns the hits of each query and whether one fits."""
    model, processor = load_model(DUAL_ENCODER, "retrieval")
    rows: list[dict[str, Any]] = [{"image": image} for image in images.values()]
    similarities = embed_texts(model, processor, queries) @ embed_images(model, processor, rows).T
    names, searches = list(images), []
    print(f"Searches among {len(images)} images:")
    for query, query_similarities in zip(queries, similarities, strict=True):
        nearest = np.argsort(-query_similarities, kind="stable")[:top_k]
        hits = [(names[place], images[names[place]], float(query_similarities[place])) for place in nearest]
        name, _, best = hits[0]
        fits = best >= search_calibration().min_similarity
        print(f"  {query}: " + (f"{name} ({best:.2f})" if fits else f"no match; most similar: {name} ({best:.2f})"))
        searches.append({"query": query, "fits": fits, "hits": hits})
    return searches


def lit(image: Image.Image, weights: np.ndarray) -> Image.Image:
    """Returns a photograph that is bright where the weights `(height, width)` are large and dark elsewhere."""
    large = max(float(np.quantile(weights, 1 - BRIGHT_SHARE)), 1e-12)
    light = DARKEST + (1 - DARKEST) * np.clip(weights / large, 0, 1)[..., None]
    return Image.fromarray((np.asarray(image.convert("RGB")) * light).astype(np.uint8))
