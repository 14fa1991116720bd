"""The demo: a page with captions of the packaged models."""

import re
import subprocess
import sys

import pytest

from hf_ngsan.data import load_data
from hf_ngsan.demo import page
from hf_ngsan.demo.page import describe, load_captioners_of_scenes, scene_to_change
from hf_ngsan.io import packaged
from hf_ngsan.io.packaged import CAPTIONERS_OF_SCENES
from tests.commands.running import prints


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
    output = {}
    for moment, boxes in (("before", row["visual_boxes"]), ("after", swap.boxes)):
        scene = describe(captioners, {**row, "visual_boxes": boxes})
        [output[moment]] = [item.answers for item in scene.sentences if item.beginning == swap.prompt.text]
        assert all(item.answers["NG-SAN signed"].is_true for item in scene.sentences)
    assert [output[moment]["NG-SAN signed"].text for moment in output] == [swap.prompt.answer, swap.answer]
    for name in ("SAN", "NG-SAN"):
        assert {output["before"][name].is_true, output["after"][name].is_true} == {True, False}, name


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
