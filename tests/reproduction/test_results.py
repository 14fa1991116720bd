"""Scores of rows, computed by hand, for the comparisons of a table."""

import json

import numpy as np
from datasets import Dataset

from hf_ngsan.reproduction import find_table, make_plan
from hf_ngsan.reproduction.results import item_scores


def test_recalls_are_those_of_images(tmp_path):
    """A caption counts for its image; images may have different numbers of captions."""
    rows = Dataset.from_dict({"captions": [["a", "b"], ["c"], ["d", "e", "f"]]})
    file = tmp_path / "ranks.json"
    file.write_text(json.dumps({"image_to_text": [1, 3, 6], "text_to_image": [1, 2, 1, 7, 1, 1]}))
    assert item_scores("image_to_text_r1", file, rows).tolist() == [100, 0, 0]
    assert item_scores("image_to_text_r5", file, rows).tolist() == [100, 100, 0]
    np.testing.assert_allclose(item_scores("text_to_image_r1", file, rows), [50, 100, 200 / 3])


def test_answers_are_scored_by_question(tmp_path):
    rows = Dataset.from_dict({"answers": [["true"] * 10, ["false"] * 10, ["yes"] * 1 + ["no"] * 9]})
    file = tmp_path / "answers.json"
    file.write_text(json.dumps([{"question_id": n, "answer": text} for n, text in enumerate(["true", "true", "yes"])]))
    assert item_scores("accuracy", file, rows)[:2].tolist() == [100, 0]
    assert item_scores("bleu", file, rows) is None


def test_language_models_come_first_and_their_captioners_name_them(tmp_path):
    plan = make_plan(
        find_table("rstnet", "1"), output=tmp_path, data="scenes:size=40,validation=4,test=24", seeds=(3, 4)
    )
    names = [item.folder.name for item in plan.runs]
    assert names == ["language-model-3", *(f"{row}-{seed}" for seed in (3, 4) for row in ("base", "aa", "ga", "both"))]
    models = {item.folder.name: item.config.model for item in plan.runs}
    assert models["both-4"]["pretrained_language_model"] == str(tmp_path / "runs" / "language-model-3")
    assert "pretrained_language_model" not in models["ga-4"]
    assert not any(tmp_path.iterdir()) and not plan.is_papers
