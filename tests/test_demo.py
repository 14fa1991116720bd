"""The demo: the page of what the packaged models say, and tiny trainings with their table, captions and search."""

import contextlib
import io
import json
import re
import shlex
import subprocess
import sys
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest
from PIL import Image
from transformers import pipeline
from transformers.utils import logging as transformers_logging

from hf_ngsan.data import load_data
from hf_ngsan.demo import page, training
from hf_ngsan.demo.page import describe, load_captioners_of_scenes, scene_to_change
from hf_ngsan.demo.training import COMPARED, FROM_PIXELS, SEARCH, VARIANTS, main, scenes_config
from hf_ngsan.io import packaged
from hf_ngsan.io.packaged import CAPTIONERS_OF_SCENES
from tests.commands.running import prints

TINY = {
    "model": {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 32, "geometry_hidden_size": 4},
    "data": {"spec": "scenes:size=24,validation=4,test=6"},
    "training": {"epochs": 1, "num_threads": 1, "tracker": None},
}
TINY_PIXELS = {
    "model": {"hidden_size": 16, "intermediate_size": 32},
    "data": {"spec": "scenes:size=24,validation=4,test=6,images=true,image_size=32", "image_size": 32},
    "training": TINY["training"],
}
TINY_SEARCH = {
    "model": {"hidden_size": 12, "projection_dim": 10, "attention_hidden_size": 6},
    "data": {"spec": "scenes:size=24,validation=4,test=12,descriptions=true"},
    "training": TINY["training"],
}
TINY_DEMO = {**dict.fromkeys(COMPARED, TINY), FROM_PIXELS: TINY_PIXELS, SEARCH: TINY_SEARCH}


class InThisProcess(Executor):
    """Trains here what the demo trains in processes side by side."""

    def __init__(self, *arguments, **more) -> None:
        pass

    def submit(self, work, config):
        result = Future()
        result.set_result(work(config))
        return result


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """The folder of a tiny `demo --train`, and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "demo"
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(io.StringIO()) as printed:
        patch.setattr(training, "ProcessPoolExecutor", InThisProcess)
        assert main(folder, changes=TINY_DEMO) == 0
    return folder, printed.getvalue()


def read(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_variants_differ_in_their_model_alone():
    configs = [scenes_config(name, Path("run")).to_dict() for name in ("SAN", "NG-SAN", "NG-SAN signed")]
    assert {*COMPARED} <= {*VARIANTS}
    models = [config.pop("model") for config in configs]
    assert configs[0] == configs[1] == configs[2]
    assert models[0] == {**models[1], "query_norm": None, "geometric_bias": []}
    assert models[2] == {**models[1], "geometry_features": "signed"}
    assert models[1]["geometric_bias"] == ["query", "key"]  # eq. 12 + eq. 13
    pixels, search = scenes_config(FROM_PIXELS, Path("run"), 3), scenes_config(SEARCH, Path("run"), 3)
    assert pixels.data.spec == "scenes:size=16000,validation=200,test=500,images=true,image_size=64,seed=3"
    assert search.data.spec == "scenes:size=3000,validation=200,test=200,descriptions=true,seed=3"
    assert (pixels.training.seed, pixels.output_dir, search.model["text_config"]["hidden_size"]) == (3, Path("run"), 64)
    assert (search.training.batch_size, search.training.drop_last, search.evaluation.every_epochs) == (50, False, 8)


def test_the_table_has_the_scores_of_the_runs(demo):
    folder, printed = demo
    for name in COMPARED:
        scores = json.loads((folder / name.lower().replace(" ", "-") / "scores.json").read_text())
        [line] = [line for line in printed.splitlines() if line.startswith(f"{name}  ")]
        numbers = line[len(name) :].split()
        expected = [f"{scores['cider_d']:.2f}", f"{scores['bleu_4']:.3f}"]
        shares = ("objects", "symmetric", "directional")
        assert numbers == [*expected, *(f"{scores[share]:.1%}" for share in shares)]
    assert [it.split() for it in printed.splitlines() if it.startswith("chance")] == [["chance", "50.0%", "50.0%"]]
    assert "SAN: trained in" in printed


def test_the_saved_model_captions_and_explains(demo):
    folder, printed = demo
    entries = json.loads((folder / "captions.json").read_text())
    assert len(entries) == 6
    assert all(len(entry["references"]) == 5 and isinstance(entry["caption"], str) for entry in entries)
    assert all(f"{entry['image_id']}: {entry['caption']}" in printed for entry in entries[:3])
    of_the_run = json.loads((folder / "ng-san-signed" / "captions.json").read_text())
    assert [entry["caption"] for entry in entries] == [entry["caption"] for entry in of_the_run]
    with Image.open(folder / "figure.png") as figure:
        assert figure.width > 1000
    assert (folder / "model" / "modeling_ngsan.py").is_file()
    config = json.loads((folder / "model" / "config.json").read_text())
    assert config["geometry_features"] == "signed"


def test_a_drawing_goes_through_the_pipeline(demo):
    folder, printed = demo
    with Image.open(folder / "scene.png") as drawing:
        assert drawing.size == (256, 256)
    for file in ("modeling_spatial_captioner.py", "modeling_vision.py", "image_processing_captioning.py"):
        assert (folder / "pixel-model" / file).is_file()
    [answer] = pipeline("image-to-text", model=str(folder / "pixel-model"))(str(folder / "scene.png"))
    lines = printed.splitlines()
    call = next(index for index, line in enumerate(lines) if line.startswith('pipeline("image-to-text"'))
    assert lines[call + 1].strip() == answer["generated_text"]
    assert (folder / "words.png").is_file() == bool(answer["generated_text"])


def test_scenes_are_found_by_words(demo, capsys):
    folder, printed = demo
    with Image.open(folder / "hits.png") as figure:
        assert min(figure.size) > 900
    lines = printed.splitlines()
    call = next(index for index, line in enumerate(lines) if "scenes.index" in line)
    arguments = shlex.split(lines[call])[1:]
    assert Path(arguments[1]) == folder / "scenes.index" and arguments[2].count(" and ") == 4
    found = [line.split("\t") for line in prints(capsys, *arguments, "--top-k", 3).splitlines()]
    for (score, name), line in zip(found, lines[call + 1 : call + 4], strict=True):
        assert line.split(", ")[0].strip() == f"{score}  {name}"
    scores = json.loads((folder / "mhsan" / "scores.json").read_text())
    assert 0 <= scores["text_to_image_r1"] <= 100


@pytest.mark.slow
def test_a_second_call_trains_nothing_and_makes_the_rest_again(demo, capfd):
    folder, _ = demo
    before, verbosity = read(folder), transformers_logging.get_verbosity()
    (folder / "figure.png").unlink()
    assert main(folder, changes=TINY_DEMO) == 0
    assert read(folder) == before
    printed = capfd.readouterr()
    assert "trained already" in printed.out and "trained in" not in printed.out
    assert printed.err == ""
    assert transformers_logging.get_verbosity() == verbosity and transformers_logging.is_progress_bar_enabled()


def sources_of(html: str) -> list[str]:
    return re.findall(r"""(?:src|href)=["']([^"']*)""", html)


def test_the_page_has_scenes_photographs_and_searches_and_loads_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(packaged, "PHOTOGRAPHS", {"officer": packaged.PHOTOGRAPHS["officer"]})
    monkeypatch.setattr(page, "NUM_IMAGES", 3)
    assert page.main(tmp_path / "new" / "demo", num_scenes=6) == 0
    file = tmp_path / "new" / "demo" / "index.html"
    assert capsys.readouterr().out.splitlines()[-1].endswith(str(file))
    html = file.read_text(encoding="utf-8")
    assert "<script" not in html and "@import" not in html and "url(" not in html
    assert all(source.startswith("data:image/") for source in sources_of(html))
    signed, [caption] = CAPTIONERS_OF_SCENES["NG-SAN signed"], re.findall(r'class="generated">“(.+?)”', html)
    assert signed in html and caption == prints(capsys, "caption", file.parent / "photographs").split("\t")[1].strip()
    looked = re.findall(r"where the captioner attends for “(\w+)”", html)
    assert looked == [word for word in caption.split() if word not in page.FUNCTION_WORDS] != []
    assert re.findall(r"<h3>“(.+?)”", html) == ["an old woman in a uniform", "two boys play football in the snow"]
    assert "hf-ngsan[demo]" in html
    officer, *nearest = re.findall(r'alt="(officer\.jpg|scene \d)"', html)
    assert officer == "officer.jpg" and nearest and 'class="hits faint"' in html


def test_only_the_signed_geometry_follows_an_exchange():
    rows = [dict(row) for row in load_data("scenes:size=1,validation=1,test=40", "test")]
    row, swap = scene_to_change(rows)
    captioners = load_captioners_of_scenes()
    assert swap.answer != swap.prompt.answer
    said = {}
    for moment, boxes in (("before", row["visual_boxes"]), ("after", swap.boxes)):
        scene = describe(captioners, {**row, "visual_boxes": boxes})
        [said[moment]] = [one.answers for one in scene.sentences if one.beginning == swap.prompt.text]
        assert all(one.answers["NG-SAN signed"].is_true for one in scene.sentences)
    assert [said[moment]["NG-SAN signed"].text for moment in said] == [swap.prompt.answer, swap.answer]
    for name in ("SAN", "NG-SAN"):
        assert {said["before"][name].is_true, said["after"][name].is_true} == {True, False}, name


def test_the_command_makes_the_page_or_trains(tmp_path, capsys, monkeypatch):
    asked = []
    for module in (page, training):
        monkeypatch.setattr(module, "main", lambda name=module.__name__, **options: asked.append((name, options)))
    for more in ((), ("--train",)):
        prints(capsys, "demo", "--output", tmp_path, "--seed", 3, *more)
    options = {"output": str(tmp_path), "seed": 3}
    assert asked == [(page.__name__, options), (training.__name__, options)]


@pytest.mark.slow
def test_the_whole_demo_is_on_one_page(tmp_path):
    command = [sys.executable, "-m", "hf_ngsan.cli", "demo", "--output", str(tmp_path)]
    subprocess.run(command, check=True)
    html = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert html.count('class="photograph"') == len(packaged.PHOTOGRAPHS)
    accuracy = re.findall(r'aria-label="[^"]*SAN (\d+)%; NG-SAN (\d+)%; NG-SAN signed (\d+)%', html)
    symmetric, directional = ([int(share) for share in shares] for shares in accuracy)
    assert 40 < symmetric[0] < 60 and min(symmetric[1:]) > 97
    assert min(directional[:2]) > 40 and max(directional[:2]) < 60 and directional[2] > 97
