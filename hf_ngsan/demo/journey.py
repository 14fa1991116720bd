"""The steps of `hf-ngsan demo --train`: models of synthetic scenes are trained, compared, saved and explained."""

import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from transformers import ProcessorMixin

from ..data import draw_scene
from ..data.scenes import Statement
from ..io.files import check_place, write_text_atomically
from ..io.folders import replace_folder_contents
from ..loading.hub import save_for_hub
from ..loading.models import find_model_folder, load_captioner, load_model
from ..loading.provenance import model_fingerprint
from ..models.configuration_vision import lasting_name
from ..retrieval import IndexDescription, IndexFolder
from ..tasks.caption_rows import load_rows
from ..tasks.retrieval_index import THUMBNAIL_SIDE
from ..tasks.retrieval_search import draw_hits, embed_images, search_images
from ..training import TrainingConfig
from ..visualization import (
    check_matplotlib,
    plot_caption,
    plot_word_maps,
    save_figure,
    word_attention,
)
from .configs import FROM_PIXELS, IN_BRIEF, SEARCH, Sections, folder_name, scenes_config, search_config
from .runs import calm_logs, check_earlier_run, print_table, train_and_compare

COMPARED = ("SAN", "NG-SAN", "NG-SAN signed", FROM_PIXELS)
SHOWN = "NG-SAN signed"
NUM_CAPTIONS = 20
NUM_HITS, NUM_PRINTED = 9, 3


def main(
    output: str | Path = "runs/demo",
    seed: int = 0,
    retrain: bool = False,
    changes: Sections | None = None,
    pixel_changes: Sections = IN_BRIEF,
    search_changes: Sections | None = None,
) -> int:
    """Trains captioners of synthetic scenes, compares them, and searches scenes.

    They are SAN, NG-SAN and NG-SAN with signed geometry, trained alike, and a captioner of pixels. MHSAN searches.

    It prints its steps and a table. Training runs that an earlier call finished are kept, and those that it began are
    resumed. `output` gets

    - `san/`, `ng-san/`, `ng-san-signed/`, `from-pixels/`: the training runs, with `scores.json` and the captions of the
      test scenes;
    - `model/`: NG-SAN signed with its code, for `pipeline("image-to-text")` and the Hub;
    - `captions.json`: captions of the first test scenes by that pipeline;
    - `figure.png`: a scene, its caption, and the attention of the relation's word;
    - `pixel-model/`: the captioner of pixels, with its code;
    - `scene.png`, `words.png`: a drawing that it captions, and the attention maps of the words;
    - `mhsan/`, `scenes.index/`: the training run of a dual encoder, and its index of the test scenes;
    - `hits.png`: the scenes that it finds for a description.

    Args:
        output: the folder.
        seed: seed of scenes and weights.
        retrain: whether to train again models that are already trained.
        changes: sections of the training config of captioners of regions, with keys to change.
        pixel_changes: the same for the captioner of pixels.
        search_changes: the same for the dual encoder.

    Returns:
        The exit code 0.

    Raises:
        ConfigError: the folder has captioners of another training config.
        OSError: the folder is a file, or cannot be written to.
        MissingPlotsError: matplotlib is not installed.
    """
    check_matplotlib()
    output = Path(output)
    check_place(output / "captions.json")
    configs: dict[str, TrainingConfig] = {
        name: scenes_config(name, output / folder_name(name), seed, pixel_changes if name == FROM_PIXELS else changes)
        for name in COMPARED
    }
    searching = search_config(output / folder_name(SEARCH), seed, search_changes)
    for config in (*configs.values(), searching):
        check_earlier_run(config, retrain)
    with calm_logs():
        scores = train_and_compare({**configs, SEARCH: searching}, retrain)
        print_table({name: scores[name] for name in configs})
        use(configs[SHOWN], output)
        use_on_pixels(configs[FROM_PIXELS], output)
        search_scenes(searching, output)
    return 0


def use(config: TrainingConfig, output: Path) -> None:
    """Saves a trained captioner with its code, loads it with transformers, captions scenes and explains one."""
    from transformers import AutoModelForImageTextToText, AutoProcessor, pipeline

    folder = output / "model"
    replace_folder_contents(folder, lambda new: save_for_hub(*load_captioner(config.output_dir), new))
    print(f'Saved to {folder}; read back with AutoModelForImageTextToText and pipeline("image-to-text").')

    rows = load_rows(config.data.spec, "test", limit=NUM_CAPTIONS)
    captioner = pipeline("image-to-text", model=str(folder))  # type: ignore[call-overload]  # a task of ours
    captions = [found[0]["generated_text"] for found in captioner(rows)]
    entries = [
        {"image_id": row["image_id"], "caption": caption, "references": row["captions"]}
        for row, caption in zip(rows, captions, strict=True)
    ]
    write_text_atomically(output / "captions.json", json.dumps(entries, indent=1) + "\n")
    print(f"Captions of test scenes, in {output / 'captions.json'}:")
    for entry in entries[:3]:
        print(f"  {entry['image_id']}: {entry['caption']}")

    model = AutoModelForImageTextToText.from_pretrained(folder)  # nosec B615  # a local folder
    processor = AutoProcessor.from_pretrained(folder)  # nosec B615  # a local folder
    explain_caption(model.eval(), processor, rows[0], output / "figure.png")
    print(f"A scene, its caption and the attention of a word: {output / 'figure.png'}")


def explain_caption(model: Any, processor: ProcessorMixin, row: Mapping, path: Path) -> None:
    """Draws a scene with its caption and the attention of the relation's first word."""
    inputs = processor(visual_features=[row["visual_features"]], visual_boxes=[row["visual_boxes"]])
    [attention] = word_attention(model, processor.tokenizer, inputs, model.generate(**inputs))
    statement = Statement.parse(" ".join(attention.words))
    word = -1 if statement is None else statement.relation.split()[0]
    save_figure(plot_caption(draw_scene(row), row["visual_boxes"], attention, word, row["objects"]), path)


def use_on_pixels(config: TrainingConfig, output: Path) -> None:
    """Captions a drawing with a captioner of pixels through transformers, and draws the attention maps."""
    from PIL import Image
    from transformers import pipeline

    folder, drawing = output / "pixel-model", output / "scene.png"
    replace_folder_contents(folder, lambda new: save_for_hub(*load_captioner(config.output_dir), new))
    draw_scene(load_rows(config.data.spec, "test")[0]).save(drawing)
    captioner = pipeline("image-to-text", model=str(folder))  # type: ignore[call-overload]  # a task of ours
    [answer] = captioner(str(drawing), return_attention=True)
    print(f'\npipeline("image-to-text", model="{folder}")("{drawing}")')
    print(f"  {answer['generated_text']}")
    if answer["words"]:
        with Image.open(drawing) as image:
            save_figure(plot_word_maps(image, answer["words"], answer["attention"]), output / "words.png")
        print(f"Where each of its words looked: {output / 'words.png'}")


def search_scenes(config: TrainingConfig, output: Path) -> None:
    """Indexes the test scenes with a trained dual encoder, searches for one by its description, and draws the hits."""
    model, processor = load_model(config.output_dir, "retrieval")
    rows = [dict(row) for row in load_rows(config.data.spec, "test")]
    names = [f"scene {row['image_id']}" for row in rows]
    embeddings = embed_images(model, processor, rows)
    description = IndexDescription(
        model=lasting_name(find_model_folder(config.output_dir)),
        fingerprint=model_fingerprint(model, processor),
        source=config.data.spec,
        source_checksum=config.data.spec,
        dimension=embeddings.shape[1],
        num_items=len(rows),
        items_per_shard=len(rows),
    )
    folder = output / "scenes.index"
    shutil.rmtree(folder, ignore_errors=True)  # of an earlier model
    index = IndexFolder.begin(folder, description)
    drawings = []
    for row in rows:
        file = io.BytesIO()
        draw_scene(row, THUMBNAIL_SIDE).save(file, "JPEG", quality=85)
        drawings.append(file.getvalue())
    index.write_shard(0, names, embeddings, thumbnails=drawings)
    query = rows[0]["captions"][0]
    hits = search_images(model, processor, index, text=query, top_k=NUM_HITS)
    print(f'\nhf-ngsan search {folder} "{query}"')
    for hit in hits[:NUM_PRINTED]:
        print(f"  {hit.score:.4f}  {hit.name}{', which the text describes' if hit.name == names[0] else ''}")
    draw_hits(index, hits, query, output / "hits.png")
    print(f"The first {len(hits)} of {len(rows)} scenes: {output / 'hits.png'}")
