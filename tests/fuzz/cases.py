"""The cases: command lines with one thing wrong, in the options or in a file that they name."""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import yaml

from .archives import hostile_file
from .inputs import SCENES
from .mutations import WRITTEN, damage, hostile_text, mutate_json, mutated

Case = Callable[[random.Random, SimpleNamespace], list]
NEVER_ENDING = ("epochs",)
"""Keys that may have any large number: a person can stop a run."""
MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "tokenizer.json",
    "processor_config.json",
)


def copied(path: Path) -> Path:
    """Returns a copy, in the folder of the case, of a file or folder."""
    target = Path.cwd() / path.name
    shutil.copytree(path, target) if path.is_dir() else shutil.copy(path, target)
    return target


def one_mutated(draw: random.Random, made: SimpleNamespace, folder: Path, names: list[str]) -> Path:
    """Returns a copy of a folder in which one of some files is changed."""
    folder = copied(folder)
    file = folder / draw.choice([name for name in names if (folder / name).is_file()])
    (mutate_json if file.suffix in (".json", ".jsonl") else damage)(draw, file, made.places)
    return folder


def files_of(folder: Path) -> list[str]:
    return sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def score(draw: random.Random, made: SimpleNamespace) -> list:
    files = {"--predictions": copied(made.results), "--references": copied(made.references)}
    frequency = copied(made.frequency)
    deed = draw.random()
    if deed < 0.15:
        damage(draw, frequency, made.places)
    else:
        mutate_json(draw, draw.choice(list(files.values())), made.places)
    more = ["--document-frequency", frequency] if deed < 0.25 else draw.choice([[], ["--per-image", "each.json"]])
    if draw.random() < 0.2:
        more = ["--check-server-format"]
    return ["score", *(word for pair in files.items() for word in pair), *more]


def coco_layout(draw: random.Random, made: SimpleNamespace) -> list:
    folder = one_mutated(draw, made, made.layout, files_of(made.layout))
    if draw.random() < 0.5:
        return ["references", "--data", f"coco-layout:{folder}", "--output", "new.json"]
    return ["caption", "--model", made.run, "--data", f"coco-layout:{folder}"]


def image_datasets(draw: random.Random, made: SimpleNamespace) -> list:
    source = draw.choice([made.lines, made.table])
    names = [name for name in files_of(source) if draw.random() < 0.3 or name.startswith("metadata")]
    spec = f"images:{one_mutated(draw, made, source, names)}"
    if draw.random() < 0.3:
        spec += f",{draw.choice(['image', 'captions', 'config'])}={hostile_text(draw, made.places)}"
    if draw.random() < 0.5:
        return ["references", "--data", spec, "--split", "train", "--output", "new.json"]
    return ["caption", "--model", made.photos, "--data", spec, "--split", "train"]


def feature_folders(draw: random.Random, made: SimpleNamespace) -> list:
    spec = f"features:{one_mutated(draw, made, made.features, files_of(made.features))}"
    if draw.random() < 0.5:
        return ["references", "--data", spec, "--output", "new.json"]
    return ["caption", "--model", made.photos, "--data", spec]


def questions(draw: random.Random, made: SimpleNamespace) -> list:
    if draw.random() < 0.5:
        spec = f"nlvr:{one_mutated(draw, made, made.nlvr, files_of(made.nlvr))}"
        return [draw.choice(["answer", "evaluate"]), "--model", made.judge, "--data", spec, "--split", "dev"]
    changed = one_mutated(draw, made, made.vqa, files_of(made.vqa))
    spec = f"vqa:{changed},features={made.features}{draw.choice(['', ',skip_broken=true'])}"
    return ["answer", "--model", made.answerer, "--data", spec, "--split", "validation"]


def question_files(draw: random.Random, made: SimpleNamespace) -> list:
    if draw.random() < 0.5:
        folder = one_mutated(draw, made, made.answerer, list(MODEL_FILES))
        return ["answer", "--model", folder, "--data", f"vqa:{made.vqa},features={made.features}", "--split", "val"]
    file = Path("questions.jsonl")
    file.write_text(json.dumps({"image": str(made.images / "0.png"), "question": "Is there a ball?"}))
    mutate_json(draw, file, made.places)
    return ["answer", "--model", made.answerer, "--questions", file]


def specs(draw: random.Random, made: SimpleNamespace) -> list:
    key = draw.choice(["size", "validation", "test", "seed", "images", "image_size", "unknown", ""])
    reader = draw.choice(["scenes", "images", "features", "coco-layout", "vqa", "nlvr", "x"])
    spec = draw.choice(
        [
            f"{SCENES},{key}={hostile_text(draw, made.places)}",
            f"scenes:{key}={hostile_text(draw, made.places)},test=2",
            f"{reader}:{hostile_text(draw, made.places)}",
            hostile_text(draw, made.places),
        ]
    )
    if draw.random() < 0.5:
        return ["references", "--data", spec, "--output", "new.json"]
    return ["caption", "--model", made.run, "--data", spec, "--limit", 2]


def models(draw: random.Random, made: SimpleNamespace) -> list:
    photos = draw.random() < 0.5
    source = made.photos if photos else made.run / "best"
    folder = one_mutated(draw, made, source, [*MODEL_FILES, *(["model.safetensors"] if draw.random() < 0.3 else [])])
    return ["caption", "--model", folder, *([made.images] if photos else ["--data", SCENES])]


def audits(draw: random.Random, made: SimpleNamespace) -> list:
    source = draw.choice([made.run / "best", made.photos, made.rstnet])
    folder = one_mutated(draw, made, source, [*MODEL_FILES, *(["model.safetensors"] if draw.random() < 0.3 else [])])
    return ["audit", "--model", folder]


def visualness(draw: random.Random, made: SimpleNamespace) -> list:
    figures = draw.choice([[], ["--figures", draw.choice(["figures", hostile_text(draw, made.places)])]])
    options = ["--data", SCENES.replace("test=2", "test=2,images=true"), "--num-beams", draw.choice([1, 2]), *figures]
    if draw.random() < 0.2:
        return ["visualness", "--model", draw.choice([made.run, made.photos]), *options]
    names = [*MODEL_FILES, *(["model.safetensors"] if draw.random() < 0.3 else [])]
    return ["visualness", "--model", one_mutated(draw, made, made.rstnet, names), *options]


def files_of_others(draw: random.Random, made: SimpleNamespace) -> list:
    source = draw.choice(sorted(made.formats.iterdir()))
    folder = one_mutated(draw, made, source, files_of(source))
    [path, *_] = [*folder.iterdir(), folder]
    if draw.random() < 0.4:
        return ["inspect", path]
    more = [[], ["--skip-broken"], ["--dtype", "float32"], ["--grid-size", 2, 2], ["--images-per-shard", 1]]
    more += [["--split", hostile_text(draw, made.places)], ["--boxes", "xywh"], [copied(made.references)]]
    return ["convert", path, "--output", "new", *draw.choice(more)]


def archives(draw: random.Random, made: SimpleNamespace) -> list:
    path = hostile_file(draw, Path.cwd() / "given")
    deed = draw.random()
    if deed < 0.3:
        return ["inspect", path]
    if deed < 0.5:
        return ["references", "--data", f"images:{path.parent}", "--split", "train", "--output", "new.json"]
    if deed < 0.6:
        return ["caption", "--model", made.photos, "--data", f"features:{path.parent}"]
    more = [[], ["--skip-broken"], ["--grid-size", 2, 2], ["--images-per-shard", 1]]
    return ["convert", draw.choice([path, path.parent]), "--output", "new", *draw.choice(more)]


def calibrations(draw: random.Random, made: SimpleNamespace) -> list:
    folder = copied(made.photos)
    (folder / "confidence.json").write_text(json.dumps(made.calibration))
    mutate_json(draw, folder / "confidence.json", made.places)
    return ["caption", "--model", folder, made.images / "0.png", "--scores"]


def inspected(draw: random.Random, made: SimpleNamespace) -> list:
    sources = (made.run, made.photos, made.features, made.images, made.lines, made.table, made.layout, made.index)
    source = draw.choice(sources)
    folder = one_mutated(draw, made, source, files_of(source))
    path = draw.choice([folder, folder, draw.choice([*folder.rglob("*"), folder])])
    more = [[], [], ["--figure", "new.png"], ["--figure", "new.png", "--images", made.images, "--image-id", 1]]
    return ["inspect", path, *draw.choice(more)]


def backbones(draw: random.Random, made: SimpleNamespace) -> list:
    folder = one_mutated(draw, made, made.backbone, files_of(made.backbone))
    return ["extract", "--images", made.images, "--backbone", folder, "--output", "new", "--num-workers", 0]


def image_lists(draw: random.Random, made: SimpleNamespace) -> list:
    images, listed = copied(made.images), copied(made.image_list)
    if draw.random() < 0.5:
        mutate_json(draw, listed, made.places)
    else:
        damage(draw, images / "1.png", made.places)
    source = draw.choice([["--images", images], ["--images", listed, "--image-folder", images]])
    return ["extract", *source, "--backbone", made.backbone, "--output", "new", "--num-workers", 0]


def extracted_folders(draw: random.Random, made: SimpleNamespace) -> list:
    folder = one_mutated(draw, made, made.features, files_of(made.features))
    source = ["--images", made.image_list, "--image-folder", made.images, "--split", "test"]
    return ["extract", *source, "--backbone", made.backbone, "--output", folder, "--num-workers", 0]


def indexes(draw: random.Random, made: SimpleNamespace) -> list:
    """An index that is damaged, of other images or of another model; it is searched or continued."""
    folder = one_mutated(draw, made, made.index, files_of(made.index))
    if draw.random() < 0.6:
        return ["search", folder, "a red ball", *draw.choice([[], ["--exact"], ["--figure", "hits.png"]])]
    images = copied(made.images)
    if draw.random() < 0.3:
        damage(draw, images / "1.png", made.places)
    where = ["--images", images, "--output", folder, "--num-workers", 0, "--images-per-shard", 2]
    return ["index", "--model", made.dual_encoder, *where, *draw.choice([[], ["--strict"], ["--to", "exact"]])]


def queries(draw: random.Random, made: SimpleNamespace) -> list:
    text, image = hostile_text(draw, made.places), draw.choice([*made.places, copied(made.images) / "1.png"])
    if draw.random() < 0.3:
        return ["explain", "--model", made.dual_encoder, image, text]
    query = draw.choice([[text], ["--image", image], [text, "--image", image], []])
    more = draw.choice([[], ["--figure", draw.choice(made.places)], ["--model", made.photos]])
    return ["search", made.index, *query, *more, *draw.choice([[], ["--top-k", hostile_text(draw, made.places)]])]


def guests(draw: random.Random, made: SimpleNamespace) -> list:
    """A captioner or dual encoder of transformers with one file changed, in what takes one."""
    name = draw.choice(["blip", "git", "florence2", "clip", "siglip"])
    source = made.guests / name
    names = [one for one in files_of(source) if not one.endswith(".safetensors") or draw.random() < 0.3]
    folder = one_mutated(draw, made, source, names)
    if name in ("clip", "siglip"):
        scores = ["--predictions", made.results, "--references", made.references, "--image-folder", made.images]
        commands = [
            ["index", "--model", folder, "--images", made.images, "--output", "new", "--num-workers", 0],
            ["evaluate", "--model", folder, "--data", f"images:{made.lines}", "--split", "train"],
            ["caption", "--model", made.photos, made.images / "0.png", "--rerank-with", folder, "--num-beams", 2],
            ["extract", "--images", made.images, "--backbone", folder, "--output", "new", "--num-workers", 0],
            ["explain", "--model", folder, made.images / "0.png", "a red ball"],
            ["score", *scores, "--clip-score", folder],
        ]
        return draw.choice(commands)
    more = [[], ["--json"], ["--prompt", hostile_text(draw, made.places)], ["--text", "a red"], ["--num-beams", 2]]
    return ["caption", "--model", folder, made.images / "0.png", "--max-new-tokens", 4, *draw.choice(more)]


def guest_trainings(draw: random.Random, made: SimpleNamespace) -> list:
    """Fine-tuning of a model of transformers with one setting, or one file of the model, changed."""
    name = draw.choice(["blip", "git", "clip"])
    folder = made.guests / name
    keys = ["lora.rank", "lora.alpha", "lora.dropout", "lora.target_modules", "lora.merge", "training.freeze"]
    keys += ["model.init_from", "training.label_smoothing", "training.own_loss", "self_critical.clip_score_model"]
    keys += ["self_critical.samples_per_image", "self_critical.max_new_tokens", "self_critical.top_p", "training.stage"]
    keys += ["data.captions_per_image", "training.gradient_accumulation_steps", "training.mixed_precision"]
    changes = [f"{draw.choice(keys)}={hostile_text(draw, made.places)}"]
    if draw.random() < 0.3:
        changes, folder = [], one_mutated(draw, made, folder, files_of(folder))
    data = "scenes:size=4,validation=2,test=2,images=true,image_size=32"
    usual = [f"model.init_from={folder}", f"data.spec={data}", f"training.output_dir={Path.cwd() / 'new'}"]
    usual += ["training.epochs=1", "training.batch_size=4", "training.tracker=null"]
    usual += draw.choice([[], ["lora.rank=2"], ["lora.rank=1", "lora.target_modules=[query]"]])
    if name != "clip":
        usual += [f"training.stage={draw.choice(['xe', 'auto'])}", "self_critical.epochs=1"]
        usual += ["self_critical.max_new_tokens=4"]
    return ["train", "--config", f"guests/{name}", *usual, *changes]


def grown_indexes(draw: random.Random, made: SimpleNamespace) -> list:
    """An index that may be damaged, brought up to date with images that are new, changed, gone or broken."""
    source = draw.choice([made.index, made.guest_index])
    model = made.dual_encoder if source is made.index else made.guests / "clip"
    folder = one_mutated(draw, made, source, files_of(source)) if draw.random() < 0.6 else copied(source)
    images = copied(made.images)
    shutil.copy(images / "0.png", images / "new.png")
    deed = draw.random()
    if deed < 0.4:
        damage(draw, images / draw.choice(["1.png", "new.png"]), made.places)
    elif deed < 0.6:
        (images / "0.png").unlink()
    more = draw.choice([[], ["--prune"], ["--strict"], ["--prune", "--images-per-shard", 1], ["--to", "exact"]])
    return ["index", "--model", model, "--images", images, "--output", folder, "--num-workers", 0, *more]


def parallel_texts(draw: random.Random, made: SimpleNamespace) -> list:
    folder = one_mutated(draw, made, made.text, files_of(made.text))
    spec = f"parallel:{folder},source=en,target=de"
    if draw.random() < 0.3:
        spec = f"parallel:{folder},{draw.choice(['source', 'target'])}={hostile_text(draw, made.places)},target=de"
    deed = draw.random()
    if deed < 0.4:
        source = one_mutated(draw, made, made.translator / "best", list(MODEL_FILES))
        return ["translate", "--model", source, draw.choice(["A dog.", hostile_text(draw, made.places)])]
    if deed < 0.6:
        file = folder / draw.choice(["test.en", "test.de"])
        return ["translate", "--model", made.translator, "--input", file, *draw.choice([[], ["--skip-errors"]])]
    return ["evaluate", "--model", made.translator, "--data", spec, "--limit", 3]


def videos(draw: random.Random, made: SimpleNamespace) -> list:
    spec = f"vatex:{one_mutated(draw, made, made.videos, files_of(made.videos))}"
    if draw.random() < 0.3:
        spec += f",language={draw.choice(['zh', hostile_text(draw, made.places)])}"
    return ["references", "--data", spec, "--split", "validation", "--output", "new.json"]


def training_configs(draw: random.Random, made: SimpleNamespace) -> list:
    sections = {**made.sections, "training": {**made.sections["training"], "output_dir": str(Path.cwd() / "new")}}
    file = Path("new.yaml")
    sections = harmless(mutated(draw, sections, made.places), sections)
    text = yaml.safe_dump(sections)
    for mark, written in WRITTEN.items():
        text = text.replace(f"'{mark}'", written)
    file.write_text(text)
    if draw.random() < 0.2:
        damage(draw, file, made.places)
        return ["train", "--config", file, "training.epochs=1", "data.limit=4"]  # whole sections may be missing
    return ["train", "--config", file]


def harmless(changed: object, sections: dict) -> object:
    """Returns a training config without what a person would have to stop: defaults of whole sections, many epochs."""
    if not isinstance(changed, dict):
        return sections if changed is None else changed
    for name in ("model", "data", "training"):
        changed[name] = changed.get(name, {}) or sections[name]
    for name in NEVER_ENDING:
        training = changed["training"]
        if isinstance(training, dict) and (not isinstance(training.get(name), int) or training[name] > 2):
            training[name] = 1
    return changed


def overrides(draw: random.Random, made: SimpleNamespace) -> list:
    keys = [
        f"{section}.{key}" for section, values in made.sections.items() for key in values if key not in NEVER_ENDING
    ]
    more = ["data.num_workers", "data.image_size", "data.captions_per_image", "training.seed", "training.drop_last"]
    more += ["training.adam_betas", "training.weight_decay", "training.max_grad_norm", "training.ema_decay"]
    more += ["training.mixed_precision", "training.gradient_accumulation_steps", "training.label_smoothing"]
    more += ["training.consensus_power", "training.keep_checkpoints", "training.log_every", "training.schedule"]
    more += ["training.decay_every", "training.decay_factor", "training.max_decays", "training.stage", "model.dropout"]
    more += [
        "evaluation.length_penalty",
        "evaluation.metric",
        "data.train_split",
        "data.validation_split",
        "data.limit",
    ]
    more += ["training.teachers", "training.teacher_weight", "training.teacher_temperature"]
    more += ["model.init_from", "model.vision_config", "model.query_norm", "model.geometric_bias", "model.model_type"]
    key = draw.choice([*keys, *more, hostile_text(draw, made.places)[:50]])
    changes = [f"{key}={hostile_text(draw, made.places)}"]
    return ["train", "--config", made.config, f"training.output_dir={Path.cwd() / 'new'}", *changes]


def resumed_runs(draw: random.Random, made: SimpleNamespace) -> list:
    names = [name for name in files_of(made.run) if draw.random() < 0.5 or name.startswith("checkpoints")]
    folder = one_mutated(draw, made, made.run, names)
    epochs = draw.choice([1, 2])
    return ["train", "--config", made.config, f"training.output_dir={folder}", f"training.epochs={epochs}", "--resume"]


def options(draw: random.Random, made: SimpleNamespace) -> list:
    caption = {"--model": made.run, "--data": SCENES, "--split": "test", "--limit": 1, "--num-beams": 1}
    caption |= {"--max-new-tokens": 3, "--batch-size": 2}
    vision = {"--backbone": made.backbone, "--num-regions": 3, "--score-threshold": 0.5, "--grid-size": 2}
    vision["--image-size"] = 40
    scores = {"--predictions": made.results, "--references": made.references, "--metrics": "bleu"}
    commands = {
        "caption": {**caption, "--text": "a", "--save-attention": "maps"},
        "evaluate": {**caption, "--output": "new.json", "--metrics": "bleu", "--num-processes": 1},
        "answer": {
            **{"--model": made.judge, "--data": f"nlvr:{made.nlvr}", "--split": "dev", "--limit": 1, "--top-k": 2},
            **{"--batch-size": 2, "--output": "new.json", "--image-id": 12003, "--image": made.images / "0.png"},
        },
        "extract": {
            **vision,
            **{"--images": made.images, "--output": "new", "--image-folder": made.images, "--split": "test"},
            **{"--dtype": "float16", "--batch-size": 2, "--num-workers": 0, "--images-per-shard": 2},
        },
        "score": {**scores, "--document-frequency": made.frequency, "--per-image": "each.json"},
        "references": {"--data": SCENES, "--split": "test", "--limit": 1, "--output": "new.json"},
        "audit": {"--model": made.rstnet, "--seed": 1},
        "visualness": {**caption, "--model": made.rstnet, "--min-count": 2, "--figures": "figures"},
        "convert": {
            **{"": made.formats / "bottom-up-tsv" / "regions.tsv", "--output": "new", "--dtype": "float16"},
            **{"--from": "bottom-up-tsv", "--boxes": "xyxy", "--split": "train", "--images-per-shard": 2},
        },
        "inspect": {
            **{"": made.features, "--figure": "new.png", "--image-id": 1, "--images": made.images},
            **{"--from": "bottom-up-tsv"},
        },
        "attach-vision": {"--model": made.run, **vision, "--output": "new"},
        "index": {
            **{"--model": made.dual_encoder, "--images": made.images, "--output": "new", "--split": "test"},
            **{"--to": "exact", "--batch-size": 2, "--num-workers": 0, "--images-per-shard": 2},
        },
        "calibrate": {
            **{"--model": made.photos, "--dual-encoder": made.dual_encoder, "--data": f"images:{made.lines}"},
            **{"--split": "train", "--train-split": "train", "--num-beams": 1, "--batch-size": 2, "--limit": 2},
        },
        "average": {"--model": made.run, "--last": 2, "--output": "new"},
        "explain": {"--model": made.dual_encoder, "": made.images / "0.png", "text=": "a ball", "--figure": "new.png"},
        "search": {"": made.index, "text=": "a red ball", "--top-k": 2, "--figure": "hits.png"},
        "translate": {"--model": made.translator, "--num-beams": 1, "--max-new-tokens": 3, "text=": "A dog."},
        "configs": {"--copy": "ngsan/scenes", "--output": "new.yaml"},
        "train": {"--config": made.config, "--stage": "xe", "--import": "json", "training.log_every=": ""},
    }
    command = draw.choice(sorted(commands))
    given = commands[command]
    needed = [key for key in given if key in NEEDED[command]]
    changed = draw.choice(list(given))
    chosen = {*needed, changed, *(key for key in given if draw.random() < 0.2)}
    words = [command]
    for key in given:
        if key in chosen:
            value = hostile_text(draw, made.places) if key == changed else given[key]
            words += [key + str(value)] if key.endswith("=") else [key, value] if key else [value]
    if command == "train":
        words.append(f"training.output_dir={Path.cwd() / 'new'}")
    return words


NEEDED = {
    "caption": ("--model", "--data", "--limit"),
    "answer": ("--model", "--data"),
    "evaluate": ("--model", "--data"),
    "extract": ("--images", "--backbone", "--output", "--num-workers"),
    "score": ("--predictions", "--references"),
    "references": ("--data", "--output"),
    "audit": ("--model",),
    "visualness": ("--model", "--data"),
    "convert": ("", "--output"),
    "inspect": ("",),
    "attach-vision": ("--model", "--backbone", "--output"),
    "index": ("--model", "--images", "--output", "--num-workers"),
    "calibrate": ("--model", "--dual-encoder", "--data", "--split"),
    "average": ("--model", "--output"),
    "explain": ("--model", "", "text="),
    "search": ("", "text="),
    "translate": ("--model", "text="),
    "configs": ("--copy",),
    "train": ("--config",),
}
CASES: dict[Case, int] = {
    score: 4,
    coco_layout: 2,
    image_datasets: 2,
    feature_folders: 2,
    questions: 2,
    question_files: 1,
    specs: 2,
    models: 4,
    audits: 1,
    visualness: 1,
    backbones: 2,
    files_of_others: 3,
    archives: 3,
    calibrations: 1,
    inspected: 2,
    image_lists: 2,
    extracted_folders: 1,
    indexes: 2,
    guests: 3,
    guest_trainings: 2,
    grown_indexes: 2,
    queries: 1,
    parallel_texts: 2,
    videos: 1,
    training_configs: 3,
    overrides: 3,
    resumed_runs: 1,
    options: 4,
}
"""With their shares."""


def choose_case(draw: random.Random) -> Case:
    return draw.choices(list(CASES), list(CASES.values()))[0]
