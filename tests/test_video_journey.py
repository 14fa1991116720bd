"""Video captioning from VATEX's files to captions, in commands, by the config of table 7."""

import json
from pathlib import Path

import numpy as np
import pytest

from tests.commands.running import prints

pytestmark = pytest.mark.slow

SIZES = ["model.hidden_size=16", "model.num_attention_heads=2", "model.intermediate_size=24"]
BRIEF = ["training.epochs=1", "training.tracker=null", "evaluation.max_new_tokens=5"]
BRIEF += ["data.num_workers=0", "data.min_word_count=1"]


@pytest.fixture
def videos(tmp_path) -> Path:
    folder, random = tmp_path / "vatex", np.random.default_rng(0)
    (folder / "val").mkdir(parents=True)
    captions = []
    for number, deed in enumerate(("runs", "sings", "cooks")):
        name = f"video{number}_000001_000011"
        np.save(folder / "val" / f"{name}.npy", random.random((1, 4 + number, 1024), dtype=np.float32))
        captions.append({"videoID": name, "enCap": [f"A man {deed}."] * 2, "chCap": ["一个男人。", "他在跑。"]})
    for split in ("training", "validation"):
        (folder / f"vatex_{split}_v1.0.json").write_text(json.dumps(captions), encoding="utf-8")
    return folder


@pytest.mark.parametrize(("config", "language"), [("vatex_n_san", "en"), ("vatex_transformer", "zh")])
def test_videos_are_trained_on_evaluated_and_captioned(config, language, videos, tmp_path, capsys):
    data, run = f"vatex:{videos},language={language}", tmp_path / "run"
    where = [f"data.spec={data}", f"training.output_dir={run}"]
    prints(capsys, "train", "--config", f"ngsan/{config}", *where, *SIZES, *BRIEF)
    saved = json.loads((run / "best" / "config.json").read_text())
    assert saved["query_norm"] == ("instance" if config == "vatex_n_san" else None)
    assert (saved["num_hidden_layers"], saved["visual_feature_size"], saved["temporal_positions"]) == (1, 1024, False)
    words = set(json.loads((run / "best" / "tokenizer.json").read_text())["model"]["vocab"])
    assert {"en": {"man", "runs", "cooks"}, "zh": {"男", "跑", "他"}}[language] <= words
    split = ["--data", data, "--split", "validation"]
    scores = json.loads(prints(capsys, "evaluate", "--model", run, *split))
    assert scores["cider_d"] >= 0
    lines = prints(capsys, "caption", "--model", run, *split).splitlines()
    assert [line.split("\t")[0] for line in lines] == ["0", "1", "2"]
