"""Trainings of `hf-ngsan demo --train`: models of synthetic scenes are trained, compared, saved and explained."""

import io
import json
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from ..data import draw_scene
from ..data.scenes import Statement
from ..io.files import check_place, write_text_atomically
from ..io.folders import replace_folder_contents
from ..io.processes import make_accelerator
from ..loading.hub import save_for_hub
from ..loading.models import find_model_folder, load_captioner, load_model, quiet_loading
from ..loading.provenance import model_fingerprint
from ..models.attention_maps import word_attention
from ..models.configuration_vision import lasting_name
from ..reproduction import folder_name
from ..retrieval import IndexDescription, IndexFolder
from ..tasks import CaptionEvaluation, load_training_config, train
from ..tasks.caption_rows import load_rows
from ..tasks.registry import task_class_of
from ..tasks.retrieval_indexing import THUMBNAIL_SIDE
from ..tasks.retrieval_search import draw_hits, embed_images, search_images
from ..training import TrainingConfig
from ..training.output_folder import check_output_folder
from ..visualization import check_matplotlib, plot_caption, plot_word_maps, save_figure

Sections = Mapping[str, Mapping[str, Any]]

FROM_PIXELS, SEARCH = "from pixels", "MHSAN"
SMALL_TEXT = {"word_embedding_size": 32, "hidden_size": 64, "num_hidden_layers": 1, "dropout": 0, "input_dropout": 0}
VARIANTS: dict[str, tuple[str, Sections]] = {
    "SAN": ("ngsan/scenes", {"model": {"query_norm": None, "geometric_bias": []}}),
    "N-SAN": ("ngsan/scenes", {"model": {"geometric_bias": []}}),
    "G-SAN": ("ngsan/scenes", {"model": {"query_norm": None}}),
    "NG-SAN": ("ngsan/scenes", {}),
    "NG-SAN signed": ("ngsan/scenes", {"model": {"geometry_features": "signed"}}),
    FROM_PIXELS: ("spatial_captioner/scenes", {}),
    SEARCH: (
        "mhsan/scenes",
        {
            "model": {"text_config": SMALL_TEXT, "hidden_size": 64, "projection_dim": 64, "attention_hidden_size": 32},
            "data": {"spec": "scenes:size=3000,validation=200,test=200,descriptions=true"},
            "training": {"epochs": 8, "batch_size": 50, "learning_rate": 4e-3, "drop_last": False, "num_threads": 1},
            "evaluation": {"every_epochs": 8},
        },
    ),
}
"""Models of synthetic scenes: the packaged training config of each, and changes to it."""
IN_BRIEF: Sections = {
    "data": {"spec": "scenes:size=8000,validation=200,test=500,images=true,image_size=64"},
    "training": {"epochs": 6, "num_threads": 1},
    "evaluation": {"every_epochs": 6},
}
"""Changes to the config of pixels that limit training to minutes."""
COMPARED = ("SAN", "NG-SAN", "NG-SAN signed", FROM_PIXELS)
SHOWN = "NG-SAN signed"
NUM_CAPTIONS = 20
NUM_HITS, NUM_PRINTED = 9, 3
CHANCE = 0.5  # share of right relations without geometry: both answers to a prompt are equally likely


def scenes_config(variant: str, output_dir: Path, seed: int = 0, changes: Sections | None = None) -> TrainingConfig:
    """Returns the training config of one of `VARIANTS`, changed further."""
    name, own_changes = VARIANTS[variant]
    packaged = load_training_config(name)
    sections = packaged.to_dict()
    sections["data"]["spec"] = packaged.data.spec.rpartition(",seed=")[0]
    for change in (own_changes, changes or {}):
        sections = {name: {**values, **change.get(name, {})} for name, values in sections.items()}
    sections["data"]["spec"] += f",seed={seed}"
    sections["training"] |= {"seed": seed, "output_dir": str(output_dir)}
    return packaged.from_dict(sections)


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
    task, accelerator = task_class_of(config.model)(config), make_accelerator()
    model, processor = load_model(result.best_dir)
    rows = task.evaluation_rows(model, processor, task.load_rows("test"))
    evaluation = task.evaluate_all(model.to(accelerator.device), processor, rows, accelerator)
    if isinstance(evaluation, CaptionEvaluation):
        evaluation.save(config.output_dir / "captions.json")
    scores = {**evaluation.scores, "training_seconds": sum(entry["seconds"] for entry in result.history)}
    write_text_atomically(config.output_dir / "scores.json", json.dumps(scores, indent=2) + "\n")
    return scores


def read_scores(config: TrainingConfig) -> dict[str, float] | None:
    """Returns the scores of a finished run; None for an unfinished one."""
    file = config.output_dir / "scores.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else None


def main(output: str | Path = "runs/demo", seed: int = 0, changes: Mapping[str, Sections] | None = None) -> int:
    """Trains captioners of synthetic scenes, compares them, and searches scenes.

    Training runs that an earlier call finished are kept, and those that it began are resumed.

    Args:
        output: folder that gets the training runs with `scores.json` and captions of the test scenes, `model/` (NG-SAN
            signed with its code), `pixel-model/`, `scenes.index/`, and captions and figures by them.
        seed: seed of scenes and weights.
        changes: sections with keys to change of the training configs, by the name of the variant.
    """
    check_matplotlib()
    output = Path(output)
    check_place(output / "captions.json")
    changes = {FROM_PIXELS: IN_BRIEF, **(changes or {})}
    configs = {
        name: scenes_config(name, output / folder_name(name), seed, changes.get(name)) for name in (*COMPARED, SEARCH)
    }
    for config in configs.values():
        check_output_folder(config, resume=True, overwrite=False)
    with quiet_loading():
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
    folder = output / "model"
    captioner = saved_captioner(config, folder)
    print(f'Saved to {folder}; read back with AutoModelForImageTextToText and pipeline("image-to-text").')

    rows = load_rows(config.data.spec, "test", limit=NUM_CAPTIONS)
    captions = [found[0]["generated_text"] for found in captioner(rows)]
    entries = [
        {"image_id": row["image_id"], "caption": caption, "references": row["captions"]}
        for row, caption in zip(rows, captions, strict=True)
    ]
    write_text_atomically(output / "captions.json", json.dumps(entries, indent=1) + "\n")
    print(f"Captions of test scenes, in {output / 'captions.json'}:")
    for entry in entries[:3]:
        print(f"  {entry['image_id']}: {entry['caption']}")

    model, processor = captioner.model, captioner.processor
    row = rows[0]
    inputs = processor(visual_features=[row["visual_features"]], visual_boxes=[row["visual_boxes"]]).to(model.device)
    [(words, weights)] = word_attention(model, processor.tokenizer, inputs, model.generate(**inputs))
    statement = Statement.parse(" ".join(words))
    word = -1 if statement is None else words.index(statement.relation.split()[0])  # the first one of the relation
    figure = plot_caption(draw_scene(row), row["visual_boxes"], words, weights, word, row["objects"])
    save_figure(figure, output / "figure.png")
    print(f"A scene, its caption and the attention of a word: {output / 'figure.png'}")


def saved_captioner(config: TrainingConfig, folder: Path) -> Any:
    """Saves a trained captioner with its code; returns its pipeline, loaded with transformers."""
    from transformers import pipeline

    replace_folder_contents(folder, lambda new: save_for_hub(*load_captioner(config.output_dir), new))
    return pipeline("image-to-text", model=str(folder))  # type: ignore[call-overload]  # a task of ours


def use_on_pixels(config: TrainingConfig, output: Path) -> None:
    """Captions a drawing with a captioner of pixels through transformers, and draws the attention maps."""
    folder, drawing = output / "pixel-model", output / "scene.png"
    captioner = saved_captioner(config, folder)
    image = draw_scene(load_rows(config.data.spec, "test")[0])
    image.save(drawing)
    [answer] = captioner(str(drawing), return_attention=True)
    print(f'\npipeline("image-to-text", model="{folder}")("{drawing}")')
    print(f"  {answer['generated_text']}")
    if answer["words"]:
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
