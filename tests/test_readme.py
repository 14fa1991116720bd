"""The commands of README and of the pages behind it, run in their order as a person types them, on tiny data."""

import json
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from matplotlib.cbook import get_sample_data
from PIL import Image
from transformers import ResNetConfig, ResNetForImageClassification

from hf_ngsan.data import load_data
from hf_ngsan.data.scenes import load_scenes
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from tests.commands.running import prints
from tests.data.formats.files import SIZES, write_tsv
from tests.data.test_nlvr import example
from tests.data.test_nlvr import write as write_statements
from tests.extraction.tiny import write_coco_file, write_photos
from tests.hub_stub import REPOSITORY
from tests.sharing.conftest import online  # noqa: F401
from tests.tasks.tiny_translation import write_pairs
from tests.test_documents import ROOT, commands_of, folder_of_the_demo  # noqa: F401
from tests.test_photographs import write_data

WHOLE = [
    "README.md",
    *(f"docs/{name}.md" for name in ("first_steps", "captioning", "training", "self_critical", "several_machines")),
    *(f"docs/{name}.md" for name in ("features", "search", "metrics")),
]
"""Pages of which every command is run, in their order."""
IN_PART = [f"docs/{name}.md" for name in ("translation", "vqa", "sharing", "serving")]
"""Pages of which the commands with a promise are run after those."""
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


EXPORT = "export --model captioner --output exported --check"
"""Half a minute with a backbone; tests/exporting runs it with tiny captioners."""


class Promise(NamedTuple):
    """What a command does beside ending with 0.

    Attributes:
        lines: how many lines it prints, no two alike; None for any number.
        each: what every line is, as a regular expression.
        files: patterns of files that are there afterwards and are not empty.
        check: called with what it prints.
    """

    lines: int | None = None
    each: str = r".*"
    files: tuple[str, ...] = ()
    check: Callable[[str], bool] = lambda printed: True


def scores(*names: str) -> Callable[[str], bool]:
    return lambda printed: set(names) <= json.loads(printed).keys()


def number_of_rows(spec: str, split: str, number: int) -> Callable[[str], bool]:
    return lambda printed: len(load_data(spec, split)) == number


def run_in(folder: str) -> Promise:
    """What docs/training.md says of `training.output_dir`."""
    of_models = [f"{folder}/{name}/{file}" for name in ("best", "last") for file in ("config.json", "*.safetensors")]
    others = ("training_config.yaml", "checkpoints/*", "tensorboard/*", "history.jsonl")
    return Promise(files=(*of_models, *(f"{folder}/{name}" for name in others)))


def pushed(printed: str) -> bool:
    return "user/captioner" in printed


CAPTION = r"photo\.jpg\t\w+( \S+)*"
PROMISES = {
    "caption photo.jpg": Promise(1, CAPTION),
    "caption photo.jpg --save-attention maps": Promise(1, CAPTION, ("maps/photo.png",)),
    "caption --model runs/demo/pixel-model runs/demo/scene.png --save-attention runs/demo/maps": Promise(
        1, r"runs/demo/scene\.png\t.+", ("runs/demo/maps/scene.png",)
    ),
    "caption photo.jpg --generate required_words=dog,grass": Promise(1, r"photo\.jpg\t(?=.*\bdog\b)(?=.*\bgrass\b).+"),
    "caption photo.jpg --generate num_beams=6 num_beam_groups=3 num_return_sequences=3": Promise(3, CAPTION),
    "caption photo.jpg --generate penalty_alpha=0.6": Promise(1, CAPTION),
    "caption photo.jpg --scores": Promise(1, r"photo\.jpg\t[^\t]+\t-\d\.\d+\t\d\.\d+(\tunlike the training images)?"),
    "caption photo.jpg --json": Promise(1, r'\{"image": "photo\.jpg", "caption": .*\}'),
    "caption photos --json --output captions.jsonl": Promise(0, files=("captions.jsonl",)),
    "configs": Promise(check=lambda printed: all(name in printed for name in ("ngsan/scenes", "mhsan/flickr8k_sru"))),
    "train --config ngsan/scenes": run_in("runs/scenes"),
    "train --config ngsan/scenes training.output_dir=runs/two --num-processes 2": run_in("runs/two"),
    "train --config ngsan/scenes model.query_norm=null 'model.geometric_bias=[]' training.output_dir=runs/san": run_in(
        "runs/san"
    ),
    "evaluate --model runs/scenes --data scenes --num-beams 3 --output captions.json": Promise(
        files=("captions.json",), check=scores("cider_d", "bleu_4", "rouge_l")
    ),
    "caption --model runs/scenes --data scenes --limit 5": Promise(5, r"\d+\t.*"),
    "search runs/demo/scenes.index 'the red circle lies left of the blue square' --figure scenes.png": Promise(
        9, r"-?\d\.\d{4}\tscene \d+", ("scenes.png",)
    ),
    "train --config spatial_captioner/scenes": run_in("runs/scenes_from_pixels"),
    "train --config ngsan/ngsan data.spec=images:photos "
    "'model.vision_config={pretrained: microsoft/resnet-50, grid_size: [7, 7]}'": run_in("runs/ngsan"),
    "extract --images images:flickr8k --split train --backbone efficientnet-lite2 --image-size 352 "
    "--output features --copies 4": Promise(check=number_of_rows("features:features", "train", 3)),
    "extract --images images:flickr8k --split validation --backbone efficientnet-lite2 --image-size 352 "
    "--output features": Promise(check=number_of_rows("features:features", "validation", 3)),
    "train --config ngsan/flickr8k data.spec=features:features": run_in("runs/flickr8k"),
    "attach-vision --model runs/flickr8k --backbone efficientnet-lite2 --image-size 352 --output captioner": Promise(
        1, r".*hf-ngsan caption --model captioner .*", ("captioner/config.json", "captioner/*.safetensors")
    ),
    "caption --model captioner photo.jpg": Promise(1, r"photo\.jpg\t.+"),
    "extract --images coco/captions_train2017.json --image-folder coco/train2017 --split train "
    "--backbone microsoft/resnet-50 --grid-size 7 7 --output coco-features --num-processes 2": Promise(
        check=number_of_rows("features:coco-features", "train", 4)
    ),
    "convert trainval_resnet101_faster_rcnn_genome_36.tsv dataset_coco.json --output bottom-up": Promise(
        check=lambda printed: (
            sum(len(load_data("features:bottom-up", split)) for split in ("train", "test")) == len(SIZES)
        )
    ),
    "train --config ngsan/scenes 'training.teachers=[runs/scenes, runs/san]' training.output_dir=runs/taught": run_in(
        "runs/taught"
    ),
    "train --config ngsan/scenes --stage distill model.init_from=runs/scenes "
    "'training.teachers=[runs/scenes, runs/san]' training.output_dir=runs/distilled": run_in("runs/distilled"),
    "train --config ngsan/scenes --stage auto training.output_dir=runs/both": Promise(
        files=run_in("runs/both").files,
        check=lambda printed: stages_of(Path("runs/both/history.jsonl")) == {"xe", "scst"},
    ),
    "train --config ngsan/coco_layout data.spec=coco-layout:DIR": run_in("runs/coco_layout"),
    "train --config ngsan/coco_layout_self_critical data.spec=coco-layout:DIR model.init_from=runs/coco_layout": run_in(
        "runs/coco_layout_self_critical"
    ),
    "train --config mhsan/flickr8k_sru data.spec=features:features data.image_size=352": run_in("runs/flickr8k_sru"),
    "evaluate --model runs/flickr8k_sru --data features:features --split validation": Promise(
        check=scores("images", "captions", "all")
    ),
    "index --model runs/flickr8k_sru --images photos --output photos.index --num-processes 2": Promise(
        files=("photos.index/*",)
    ),
    "index --images photos --output found.index": Promise(files=("found.index/*",)),
    "search found.index 'a dog jumps over a log'": Promise(check=lambda printed: printed.count("\n") >= 4),
    "search found.index 'a dog jumps over a log' --figure hits.png": Promise(
        check=lambda printed: printed.count("\n") >= 4, files=("hits.png",)
    ),
    "search photos.index 'a dog jumps over a log' --top-k 9 --figure hits.png": Promise(
        check=lambda printed: printed.count("\n") >= 4, files=("hits.png",)
    ),
    "search photos.index --image photo.jpg": Promise(check=lambda printed: printed.count("\n") >= 4),
    "explain --model runs/flickr8k_sru photo.jpg 'a dog jumps over a log' --figure heads.png": Promise(
        files=("heads.png",)
    ),
    "caption photo.jpg --num-beams 5 --rerank-with runs/flickr8k_sru": Promise(1, CAPTION),
    "caption photo.jpg --num-beams 8 --rerank-with mhsan-flickr8k": Promise(1, CAPTION),
    "train --config nsa_transformer/multi30k data.spec=parallel:multi30k,source=en,target=de": run_in("runs/multi30k"),
    "evaluate --model runs/multi30k --data parallel:multi30k,source=en,target=de --split test_2016_flickr": Promise(
        check=scores("bleu", "signatures")
    ),
    "translate --model runs/multi30k 'A dog jumps over a log.'": Promise(1),
    "train --config mcan/nlvr data.spec=nlvr:DIR 'model.geometric_bias=[query]'": run_in("runs/nlvr"),
    "evaluate --model runs/nlvr --data nlvr:DIR --split test": Promise(check=scores("questions", "accuracy")),
    "answer --model runs/nlvr --data nlvr:DIR,images=true --split test --limit 5 --save-attention figures": Promise(
        5, r"\d+\t(true|false)\t0\.\d+", tuple(f"figures/{number}000.png" for number in range(20, 25))
    ),
    "references --data scenes --split test --output references.json": Promise(files=("references.json",)),
    "score --predictions captions.json --references references.json": Promise(8, r"\w+ +\d\.\d{4}|6 images"),
    "score --predictions captions.json --references references.json --metrics meteor": Promise(
        2, r"meteor +\d\.\d{4}|6 images"
    ),
    "models": Promise(check=lambda printed: "ngsan-flickr8k" in printed),
    "evaluate --model runs/scenes --data scenes --record": Promise(
        files=("runs/scenes/best/evaluations.json",), check=scores("cider_d")
    ),
    "push runs/scenes user/captioner --dry-run folder": Promise(
        files=("folder/**/README.md", "folder/**/modeling_ngsan.py", "folder/**/*.safetensors"), check=pushed
    ),
    "push runs/scenes user/captioner --license cc-by-4.0": Promise(check=pushed),
    EXPORT: Promise(files=("exported/*.onnx*", "exported/captioner.py")),
}


def stages_of(history: Path) -> set[str]:
    return {json.loads(line)["stage"] for line in history.read_text().splitlines()}


def fill(folder: Path) -> None:
    """Writes what the commands read: each of the data sets, a few examples large."""
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
    listed = [
        {
            "cocoid": key,
            "filename": f"{key}.jpg",
            "split": split,
            "sentences": [{"raw": caption, "tokens": caption.split()} for caption in CAPTIONS],
        }
        for key, split in zip(SIZES, splits, strict=True)
    ]
    (folder / "dataset_coco.json").write_text(json.dumps({"images": listed}))
    write_layouts(folder / "DIR")
    for name, numbers in (("dev", range(12)), ("test", range(20, 26))):
        write_statements(folder / "DIR", [example(f"{number}-0", str(number % 6)) for number in numbers], name)
        for number in numbers:
            pictures = folder / "DIR" / name / "images" / str(number % 6)
            pictures.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (400, 100), "white").save(pictures / f"{name}-{number}-0-0.png")
    write_pairs(folder / "multi30k")
    for language in ("en", "de"):
        shutil.copy(folder / "multi30k" / f"test.{language}", folder / "multi30k" / f"test_2016_flickr.{language}")


def write_layouts(folder: Path) -> None:
    """Writes COCO's files of boxes and captions, of synthetic scenes."""
    folder.mkdir()
    for split in ("train", "validation", "test"):
        rows = load_scenes(split, size=8, validation=4, test=4)
        images = [{"id": row["image_id"], "width": 100, "height": 100} for row in rows]
        boxes = [
            {
                "id": 100 * number + place,
                "image_id": row["image_id"],
                "category_id": 1 + place % 2,
                "bbox": [place, 2, 30, 40],
            }
            for number, row in enumerate(rows)
            for place in range(3)
        ]
        texts = [
            {"id": 100 * number + place, "image_id": row["image_id"], "caption": caption}
            for number, row in enumerate(rows)
            for place, caption in enumerate(row["captions"])
        ]
        kinds = [{"id": 1, "name": "dog"}, {"id": 2, "name": "log"}]
        instances = {"images": images, "annotations": boxes, "categories": kinds}
        (folder / f"instances_{split}.json").write_text(json.dumps(instances))
        (folder / f"captions_{split}.json").write_text(json.dumps({"images": images, "annotations": texts}))


def smaller(command: list[str]) -> list[str]:
    """Returns a command that does the same with less: small models, an epoch, few scenes, one process."""
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
    less = [*sizes, words_of, "training.epochs=1", "training.num_threads=1"]
    if config.startswith("mhsan"):
        less.append("training.batch_size=2")
    if "scenes" in config:
        images = ",images=true,image_size=32" if config.startswith("spatial") else ""
        less.append(f"data.spec={SCENES}{images}")
    if "--stage" in command or config.endswith("self_critical"):
        less += ["self_critical.epochs=1"]
    given = {word.split("=")[0] for word in words}
    return [*words, *(word for word in less if word.split("=")[0] not in given)]


def commands_run() -> list[list[str]]:
    """The commands of the pages, in their order, each once."""
    commands = [command for page in WHOLE for command in commands_of(ROOT / page)]
    more = [command for page in IN_PART for command in commands_of(ROOT / page)]
    commands += [command for command in more if shlex.join(command) in {*PROMISES, *WITHOUT_AN_END}]
    return list({shlex.join(command): command for command in commands}.values())


def test_every_command_has_a_promise():
    assert {*map(shlex.join, commands_run())} == {*PROMISES, *WITHOUT_AN_END}


@pytest.mark.slow
def test_commands_keep_their_promises(folder_of_the_demo, tmp_path, monkeypatch, capsys, online):  # noqa: F811
    shutil.copytree(folder_of_the_demo / "runs", tmp_path / "runs")
    fill(tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in commands_run():
        if shlex.join(command) not in (*WITHOUT_AN_END, EXPORT):
            keep(command, capsys)
    assert "README.md" in online.repositories[REPOSITORY].at("main")[1]


def keep(command: list[str], capsys: pytest.CaptureFixture) -> None:
    """Runs a command of a page in the current folder, and looks whether it keeps its promise."""
    name = shlex.join(command)
    promise, printed = PROMISES[name], prints(capsys, *smaller(command))
    lines = printed.splitlines()
    assert promise.lines in (None, len(lines)) and len({*lines}) == len(lines), (name, printed)
    assert all(re.fullmatch(promise.each, line) for line in lines), (name, printed)
    assert promise.check(printed), (name, printed)
    for pattern in promise.files:
        found = [*Path().glob(pattern)]
        assert found and all(file.is_dir() or file.stat().st_size for file in found), (name, pattern)
