"""Trainings of `hf-ngsan demo --train`: models of synthetic scenes are trained, compared, saved and explained."""

import io
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ..data import draw_scene, extra_scores_of
from ..data.scenes import Statement
from ..io.files import check_place, write_text_atomically
from ..io.folders import replace_folder_contents
from ..loading.hub import save_for_hub
from ..loading.models import find_model_folder, load_captioner, load_model, quiet_loading
from ..loading.provenance import model_fingerprint
from ..models.attention_maps import word_attention
from ..models.configuration_vision import lasting_name
from ..retrieval import IndexDescription, IndexFolder
from ..tasks import RetrievalConfig, embed_pairs, evaluate_captioner, load_training_config, train
from ..tasks.caption_rows import load_rows, rows_for
from ..tasks.retrieval_search import THUMBNAIL_SIDE, draw_hits, embed_images, search_images
from ..training import ConfigError, TrainingConfig
from ..training.output_folder import TRAINING_CONFIG
from ..visualization import check_matplotlib, plot_caption, plot_word_maps, save_figure

Sections = Mapping[str, Mapping[str, Any]]

VARIANTS: Sections = {
    "SAN": {"query_norm": None, "geometric_bias": []},
    "N-SAN": {"geometric_bias": []},
    "G-SAN": {"query_norm": None},
    "NG-SAN": {},
    "NG-SAN signed": {"geometry_features": "signed"},
}
"""Fields of the configuration that make a variant of NG-SAN."""
FROM_PIXELS = "from pixels"
IN_BRIEF: Sections = {
    "data": {"spec": "scenes:size=8000,validation=200,test=500,images=true,image_size=64"},
    "training": {"epochs": 6, "num_threads": 1},
    "evaluation": {"every_epochs": 6},
}
"""Changes to the packaged config of pixels that limit training to minutes."""

SEARCH = "MHSAN"
SMALL_TEXT = {"word_embedding_size": 32, "hidden_size": 64, "num_hidden_layers": 1, "dropout": 0, "input_dropout": 0}
SMALL_SEARCH: Sections = {
    "model": {"text_config": SMALL_TEXT, "hidden_size": 64, "projection_dim": 64, "attention_hidden_size": 32},
    "data": {"spec": "scenes:size=3000,validation=200,test=200,descriptions=true"},
    "training": {"epochs": 8, "batch_size": 50, "learning_rate": 4e-3, "drop_last": False, "num_threads": 1},
    "evaluation": {"every_epochs": 8},
}
"""Changes to the packaged config of search, for a smaller MHSAN."""
COMPARED = ("SAN", "NG-SAN", "NG-SAN signed", FROM_PIXELS)
SHOWN = "NG-SAN signed"
NUM_CAPTIONS = 20
NUM_HITS, NUM_PRINTED = 9, 3
CHANCE = 0.5  # share of right relations without geometry: both answers to a prompt are equally likely


def scenes_config(variant: str, output_dir: Path, seed: int = 0, changes: Sections | None = None) -> TrainingConfig:
    """Returns the training config of a captioner of synthetic scenes: one of `VARIANTS`, or `FROM_PIXELS`."""
    if variant == FROM_PIXELS:
        return changed("spatial_captioner/scenes", output_dir, seed, changes or {})
    return changed("ngsan/scenes", output_dir, seed, changes or {}, {"model": VARIANTS[variant]})


def search_config(output_dir: Path, seed: int = 0, changes: Sections | None = None) -> TrainingConfig:
    """Returns the training config of a dual encoder of synthetic scenes; see [`scenes_config`]."""
    return changed("mhsan/scenes", output_dir, seed, SMALL_SEARCH, changes or {})


def changed(config: str, output_dir: Path, seed: int, *changes: Sections) -> TrainingConfig:
    packaged = load_training_config(config)
    sections = packaged.to_dict()
    sections["data"]["spec"] = packaged.data.spec.rpartition(",seed=")[0]
    for change in changes:
        sections = {name: {**values, **change.get(name, {})} for name, values in sections.items()}
    sections["data"]["spec"] += f",seed={seed}"
    sections["training"] |= {"seed": seed, "output_dir": str(output_dir)}
    return packaged.from_dict(sections)


def folder_name(variant: str) -> str:
    return variant.lower().replace(" ", "-")


def train_side_by_side(configs: Mapping[str, TrainingConfig]) -> None:
    """Trains and scores each variant in its own process."""
    print(f"Training {', '.join(configs)} on synthetic scenes, side by side: some minutes on two cores.", flush=True)
    with ProcessPoolExecutor(len(configs), mp_context=get_context("spawn"), initializer=be_silent) as pool:
        runs = {pool.submit(train_and_score, config): name for name, config in configs.items()}
        for run in as_completed(runs):
            seconds = round(run.result()["training_seconds"])
            print(f"  {runs[run]}: trained in {seconds // 60}:{seconds % 60:02d} min", flush=True)


def be_silent() -> None:  # exceptions of a worker process reach the main process
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def train_and_score(config: TrainingConfig) -> dict[str, float]:
    """Trains a model of scenes; returns its scores on the test scenes, which its folder gets with its captions."""
    result = train(config, resume=True)
    spec, batch_size, rows = config.data.spec, config.evaluation.batch_size, load_rows(config.data.spec, "test")
    if isinstance(config, RetrievalConfig):
        model, processor = load_model(result.best_dir, "retrieval")
        scores = embed_pairs(model, processor, rows, batch_size=batch_size).scores()
    else:
        model, processor = load_captioner(result.best_dir)
        rows = rows_for(model, processor, rows, spec)
        extra = extra_scores_of(spec)
        evaluation = evaluate_captioner(model, processor, rows, extra_scores=extra, batch_size=batch_size)
        evaluation.save(config.output_dir / "captions.json")
        scores = evaluation.scores
    scores = {**scores, "training_seconds": sum(entry["seconds"] for entry in result.history)}
    write_text_atomically(config.output_dir / "scores.json", json.dumps(scores, indent=2) + "\n")
    return scores


def read_scores(config: TrainingConfig) -> dict[str, float] | None:
    """Returns the scores of a finished run; None for an unfinished one."""
    file = config.output_dir / "scores.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


@contextmanager
def calm_logs() -> Iterator[None]:
    """Lets transformers and the training loop log only errors inside the `with` block."""
    training = logging.getLogger("hf_ngsan.training")
    level = training.level
    training.setLevel(logging.WARNING)
    try:
        with quiet_loading():
            yield
    finally:
        training.setLevel(level)


def main(
    output: str | Path = "runs/demo",
    seed: int = 0,
    changes: Sections | None = None,
    pixel_changes: Sections = IN_BRIEF,
    search_changes: Sections | None = None,
) -> int:
    """Trains captioners of synthetic scenes, compares them, and searches scenes.

    Training runs that an earlier call finished are kept, and those that it began are resumed.

    Args:
        output: folder that gets the training runs with `scores.json` and captions of the test scenes, `model/` (NG-SAN
            signed with its code), `pixel-model/`, `scenes.index/`, and captions and figures by them.
        seed: seed of scenes and weights.
        changes, pixel_changes, search_changes: sections with keys to change of the training configs of captioners of
            regions, of the captioner of pixels, and of the dual encoder.
    """
    check_matplotlib()
    output = Path(output)
    check_place(output / "captions.json")
    configs: dict[str, TrainingConfig] = {
        name: scenes_config(name, output / folder_name(name), seed, pixel_changes if name == FROM_PIXELS else changes)
        for name in COMPARED
    }
    configs[SEARCH] = search_config(output / folder_name(SEARCH), seed, search_changes)
    for config in configs.values():
        earlier = config.output_dir / TRAINING_CONFIG
        if earlier.is_file() and load_training_config(earlier).changes_that_break_resuming(config):
            raise ConfigError(f"{output} holds a demo with another seed or training config; give another --output.")
    with calm_logs():
        missing = {name: config for name, config in configs.items() if read_scores(config) is None}
        if missing:
            train_side_by_side(missing)
        else:
            print("All models are trained already.", flush=True)
        print(f"\n{'':15}{'CIDEr-D':>10}{'BLEU-4':>10}{'objects':>10}{'relations: symmetric':>24}{'directional':>14}")
        for name in COMPARED:
            values: Any = read_scores(configs[name])
            print(
                f"{name:15}{values['cider_d']:10.2f}{values['bleu_4']:10.3f}{values['objects']:10.1%}"
                f"{values['symmetric']:24.1%}{values['directional']:14.1%}"
            )
        print(f"{'chance':15}{'':30}{CHANCE:24.1%}{CHANCE:14.1%}\n")
        use(configs[SHOWN], output)
        use_on_pixels(configs[FROM_PIXELS], output)
        search_scenes(configs[SEARCH], output)
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
    own = zip(rows["image_id"], captions, rows["captions"], strict=True)
    entries = [dict(zip(("image_id", "caption", "references"), entry, strict=True)) for entry in own]
    write_text_atomically(output / "captions.json", json.dumps(entries, indent=1) + "\n")
    print(f"Captions of test scenes, in {output / 'captions.json'}:")
    for entry in entries[:3]:
        print(f"  {entry['image_id']}: {entry['caption']}")

    model = AutoModelForImageTextToText.from_pretrained(folder).eval()  # nosec B615  # a local folder
    processor = AutoProcessor.from_pretrained(folder)  # nosec B615  # a local folder
    row = rows[0]
    inputs = processor(visual_features=[row["visual_features"]], visual_boxes=[row["visual_boxes"]])
    [(words, weights)] = word_attention(model, processor.tokenizer, inputs, model.generate(**inputs))
    statement = Statement.parse(" ".join(words))
    word = -1 if statement is None else words.index(statement.relation.split()[0])  # the first one of the relation
    figure = plot_caption(draw_scene(row), row["visual_boxes"], words, weights, word, row["objects"])
    save_figure(figure, output / "figure.png")
    print(f"A scene, its caption and the attention of a word: {output / 'figure.png'}")


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
    files = [io.BytesIO() for _ in rows]
    for row, file in zip(rows, files, strict=True):
        draw_scene(row, THUMBNAIL_SIDE).save(file, "JPEG", quality=85)
    index.write_shard(0, names, embeddings, thumbnails=[file.getvalue() for file in files])
    query = rows[0]["captions"][0]
    hits = search_images(model, processor, index, text=query, top_k=NUM_HITS)
    print(f'\nhf-ngsan search {folder} "{query}"')
    for hit in hits[:NUM_PRINTED]:
        print(f"  {hit.score:.4f}  {hit.name}{', which the text describes' if hit.name == names[0] else ''}")
    draw_hits(index, hits, query, output / "hits.png")
    print(f"The first {len(hits)} of {len(rows)} scenes: {output / 'hits.png'}")
