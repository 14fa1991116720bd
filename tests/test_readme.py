"""The commands of README and docs, run in their order as a user types them, on tiny data."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from matplotlib.cbook import get_sample_data
from PIL import Image
from transformers import ResNetConfig, ResNetForImageClassification

from hf_ngsan.cli import parse
from hf_ngsan.data import load_data
from hf_ngsan.data.scenes import load_scenes
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.tasks import load_training_config
from tests.commands.running import prints
from tests.data.formats.files import SIZES, write_tsv
from tests.data.test_nlvr import example
from tests.data.test_nlvr import write as write_statements
from tests.extraction.tiny import write_coco_file, write_photos
from tests.hub_stub import REPOSITORY
from tests.sharing.conftest import online  # noqa: F401
from tests.tasks.tiny_translation import write_pairs
from tests.test_documents import ROOT, commands_of
from tests.test_photographs import write_data

WHOLE = [
    "README.md",
    *(f"docs/{name}.md" for name in ("first_steps", "captioning", "training", "self_critical", "several_machines")),
    *(f"docs/{name}.md" for name in ("features", "image_search", "metrics")),
]
"""Pages whose commands are all run, in their order."""
IN_PART = [f"docs/{name}.md" for name in ("translation", "vqa", "sharing", "serving", "reproduce")]
"""Pages whose commands with a checked output are run afterwards."""
CAPTIONS = ["a man in a uniform", "a dog jumps over a log in the grass"]
SCENES = "scenes:size=24,validation=4,test=6"
SIZES_OF_MODELS = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "num_hidden_layers": 1}
TINY = {
    "ngsan": {**SIZES_OF_MODELS, "geometry_hidden_size": 4},
    "spatial_captioner": {"hidden_size": 16, "intermediate_size": 32},
    "mhsan": {"hidden_size": 12, "projection_dim": 10, "attention_hidden_size": 6},
    "nsa_transformer": SIZES_OF_MODELS,
    "mcan": {**SIZES_OF_MODELS, "word_embedding_size": 8, "reduction_hidden_size": 8, "pooled_size": 16},
}
"""Sizes of the models that are trained, by the folder of their training config."""
WITHOUT_AN_END = ("serve --model captioner --port 8000", "app", "app --model ngsan-signed-scenes --data scenes")
"""Servers, which other tests start."""


OF_BOXES = ("boxes.json", "regions", "of-boxes")
"""Names in commands that tests/extraction/test_boxes.py runs."""
EXPORT = "export --model captioner --output exported --check"
"""Half a minute with a backbone; tests/exporting runs it with tiny captioners."""
RUN = ("best/config.json", "best/*.safetensors", "last/config.json", "last/*.safetensors", "training_config.yaml")
RUN += ("checkpoints/*", "tensorboard/*", "history.jsonl")
"""Files of a run, as described in docs/training.md."""
CAPTION = r"photo\.jpg\t\w+( \S+)*"
LINES = {
    "caption photo.jpg": (1, CAPTION),
    "caption photo.jpg --save-attention maps": (1, CAPTION),
    "caption photo.jpg --generate required_words=dog,grass": (1, r"photo\.jpg\t(?=.*\bdog\b)(?=.*\bgrass\b).+"),
    "caption photo.jpg --generate num_beams=6 num_beam_groups=3 num_return_sequences=3": (3, CAPTION),
    "caption photo.jpg --scores": (1, r"photo\.jpg\t[^\t]+\t-\d\.\d+\t\d\.\d+(\tunlike the training images)?"),
    "caption photo.jpg --json": (1, r'\{"image": "photo\.jpg", "caption": .*\}'),
    "caption photos --json --output captions.jsonl": (0, ""),
    "caption --model runs/scenes --data scenes --limit 5": (5, r"\d+\t.*"),
    "caption --model captioner photo.jpg": (1, r"photo\.jpg\t.+"),
    "caption photo.jpg --num-beams 5 --rerank-with runs/flickr8k_sru": (1, CAPTION),
    "caption photo.jpg --num-beams 8 --rerank-with mhsan-photos": (1, CAPTION),
    "answer --model runs/nlvr --data nlvr:DIR,images=true --split test --limit 5 --save-attention figures": (
        5,
        r"\d+\t(true|false)\t0\.\d+",
    ),
    "translate --model runs/multi30k 'A dog jumps over a log.'": (1, r".*"),
    "score --predictions captions.json --references references.json": (8, r"\w+ +\d\.\d{4}|6 images.*"),
    "score --predictions captions.json --references references.json --metrics meteor": (
        2,
        r"meteor +\d\.\d{4}|6 images.*",
    ),
}
"""The number of lines that commands print, all different, and a regular expression for every line."""
SCORES = {
    "evaluate --model runs/scenes --data scenes --num-beams 3 --output captions.json": {"cider_d", "bleu_4", "rouge_l"},
    "evaluate --model runs/scenes --data scenes --record": {"cider_d"},
    "evaluate --model runs/flickr8k_sru --data features:features --split validation": {"images", "captions", "all"},
    "evaluate --model runs/multi30k --data parallel:multi30k,source=en,target=de --split test_2016_flickr": {
        "bleu",
        "signatures",
    },
    "evaluate --model runs/nlvr --data nlvr:DIR --split test": {"questions", "accuracy"},
}
ROWS = {"features": ("train", 3), "coco-features": ("train", 4), "bottom-up": ("test", len(SIZES) - 1)}
"""A split of the features that commands write, and its size."""
OF_OTHER_PAGES = [
    "train --config nsa_transformer/multi30k data.spec=parallel:multi30k,source=en,target=de",
    "train --config mcan/nlvr data.spec=nlvr:DIR 'model.geometric_bias=[query]'",
    "references --data scenes --split test --output references.json",
    "push runs/scenes user/captioner --dry-run folder",
    "push runs/scenes user/captioner --license cc-by-4.0",
    "push runs/scenes user/captioner --private --license cc-by-4.0",
    "inspect ngsan-photos --self-test",
    "train --config nsa_transformer/multi30k data.spec=parallel:multi30k,source=en,target=de --resume",
    "translate --model runs/multi30k --input test.en --output test.translated.de",
    "explain --model runs/scenes --data scenes --counterfactual swap --region 0 --other 1 --figure swap.png",
    "explain --model runs/scenes --data scenes --counterfactual score",
    *LINES,
    *SCORES,
]
"""Commands of pages that are not run completely."""


def fill(folder: Path) -> None:
    """Writes the inputs of the commands: all datasets, with a few examples each."""
    with Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False)) as photograph:
        photograph.convert("RGB").resize((160, 160)).save(folder / "photo.jpg")
    for split in ("train", "validation"):
        photos = write_photos(folder / "photos" / split, 2)
        lines = [f"{file.name},{caption}" for file, caption in zip(sorted(photos.iterdir()), CAPTIONS, strict=True)]
        (photos / "metadata.csv").write_text("\n".join(["file_name,captions", *lines]) + "\n")
    encoded = (folder / "photo.jpg").read_bytes()
    for name, numbers in (("flickr8k", range(3)), ("others", range(3, 6))):
        write_data(folder / name, dict.fromkeys(numbers, encoded))
    (folder / "others" / "validation.parquet").replace(folder / "flickr8k" / "validation.parquet")
    names = {number: f"{number:06d}.png" for number in range(1, 5)}
    write_photos(folder / "coco" / "train2017", 4)
    write_coco_file(folder / "coco" / "captions_train2017.json", names, dict.fromkeys(names, CAPTIONS))
    resnet = ResNetConfig(embedding_size=4, hidden_sizes=[8, 2048], depths=[1, 1])
    ResNetForImageClassification(resnet).save_pretrained(folder / "microsoft" / "resnet-50")
    CaptioningImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder / "microsoft" / "resnet-50")
    write_tsv(folder / "trainval_resnet101_faster_rcnn_genome_36.tsv")
    splits = ["train", *["test"] * (len(SIZES) - 1)]
    message = {"sentences": [{"raw": caption, "tokens": caption.split()} for caption in CAPTIONS]}
    pairs = zip(SIZES, splits, strict=True)
    listed = [{"cocoid": key, "filename": f"{key}.jpg", "split": split, **message} for key, split in pairs]
    (folder / "dataset_coco.json").write_text(json.dumps({"images": listed}))
    write_layouts(folder / "DIR")
    for name, numbers in (("dev", range(12)), ("test", range(20, 26))):
        write_statements(folder / "DIR", [example(f"{number}-0", str(number % 6)) for number in numbers], name)
        for number in numbers:
            pictures = folder / "DIR" / name / "images" / str(number % 6)
            pictures.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (400, 100), "white").save(pictures / f"{name}-{number}-0-0.png")
    write_pairs(folder / "multi30k")
    shutil.copy(folder / "multi30k" / "test.en", folder / "test.en")
    for language in ("en", "de"):
        shutil.copy(folder / "multi30k" / f"test.{language}", folder / "multi30k" / f"test_2016_flickr.{language}")


def write_layouts(folder: Path) -> None:
    """Writes COCO's files of boxes and captions, for synthetic scenes."""
    folder.mkdir()
    for split in ("train", "validation", "test"):
        rows = load_scenes(split, size=8, validation=4, test=4)
        images = [{"id": row["image_id"], "width": 100, "height": 100} for row in rows]
        boxes, texts = [], []
        for number, row in enumerate(rows):
            for place, caption in enumerate(row["captions"]):
                about = {"id": 100 * number + place, "image_id": row["image_id"]}
                boxes.append({**about, "category_id": 1 + place % 2, "bbox": [place, 2, 30, 40]})
                texts.append({**about, "caption": caption})
        kinds = [{"id": 1, "name": "dog"}, {"id": 2, "name": "log"}]
        instances = {"images": images, "annotations": boxes, "categories": kinds}
        (folder / f"instances_{split}.json").write_text(json.dumps(instances))
        (folder / f"captions_{split}.json").write_text(json.dumps({"images": images, "annotations": texts}))


def smaller(command: list[str]) -> list[str]:
    """Returns a smaller version of a command: small models, one epoch, few scenes, one process."""
    if "--num-processes" in command:
        command = command[: command.index("--num-processes")]
    words = [SCENES if word == "scenes" else word for word in command]
    if command[0] in ("extract", "index"):
        words += ["--num-workers", "0"]
    if command[0] != "train":
        return words
    config = command[command.index("--config") + 1]
    sizes = [f"model.{name}={value}" for name, value in TINY[config.split("/")[0]].items()]
    words_of = "data.vocab_size=310" if config.startswith("nsa") else "data.min_word_count=1"
    keeps_words = config.endswith(("fine_tune", "self_critical")) or any("init_from" in word for word in command)
    less = [*sizes, *[words_of] * (not keeps_words), "training.epochs=1", "training.num_threads=1"]
    if config.startswith("mhsan"):
        less.append("training.batch_size=2")
    if "scenes" in config:
        images = ",images=true,image_size=32" if config.startswith("spatial") else ""
        less.append(f"data.spec={SCENES}{images}")
    if "--stage" in command or config.endswith("self_critical"):
        less += ["self_critical.epochs=1"]
    arguments = {word.split("=")[0] for word in words}
    return [*words, *(word for word in less if word.split("=")[0] not in arguments)]


def commands_run() -> list[list[str]]:
    """The commands of the pages, in their order, each once."""
    commands = [command for page in WHOLE for command in commands_of(ROOT / page)]
    more = [command for page in IN_PART for command in commands_of(ROOT / page)]
    commands += [command for command in more if shlex.join(command) in OF_OTHER_PAGES]
    return list({shlex.join(command): command for command in commands}.values())


def test_what_is_promised_is_run():
    assert {*OF_OTHER_PAGES} <= {*map(shlex.join, commands_run())}


@pytest.mark.slow
def test_commands_keep_their_promises(tmp_path, monkeypatch, capsys, online):  # noqa: F811
    fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in commands_run():
        name = shlex.join(command)
        if name not in (*WITHOUT_AN_END, EXPORT) and not any(word in name for word in OF_BOXES):
            keep(command, capsys)
    history = map(json.loads, Path("runs/both/history.jsonl").read_text().splitlines())
    assert {entry["stage"] for entry in history} == {"xe", "scst"}
    assert [*Path("folder").rglob("modeling_ngsan.py")] and Path("runs/scenes/best/evaluations.json").is_file()
    assert "README.md" in online.repositories[REPOSITORY].at("main")[1]


def keep(command: list[str], capsys: pytest.CaptureFixture) -> None:
    """Runs a command of a page in the current folder, and checks its output and files."""
    name, options = shlex.join(command), parse(command)
    printed = prints(capsys, *smaller(command))
    if name in LINES:
        (number, line), lines = LINES[name], printed.splitlines()
        assert len({*lines}) == len(lines) == number and all(re.fullmatch(line, item) for item in lines), (
            name,
            printed,
        )
    if name in SCORES:
        assert SCORES[name] <= json.loads(printed).keys(), name
    places = [getattr(options, item, None) for item in ("output", "figure", "save_attention")]
    patterns = [pattern for place in places if place for pattern in (place, f"{place}/*")]
    if command[0] == "train":
        run = load_training_config(options.config, options.overrides).output_dir
        patterns = [f"{run}/{pattern}" for pattern in RUN]
    for pattern in patterns:
        actual = [*Path().glob(pattern)]
        assert all(file.is_dir() or file.stat().st_size for file in actual), (name, pattern)
        assert actual or Path(pattern).parent.is_file(), (name, pattern)
    if command[0] in ("extract", "convert"):
        split, number = ROWS[options.output]
        assert len(load_data(f"features:{options.output}", split)) == number, name
