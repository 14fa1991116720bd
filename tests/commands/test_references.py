"""`hf-ngsan references`: captions of a dataset as a COCO file for `hf-ngsan score`."""

import json

from hf_ngsan.data import load_data
from hf_ngsan.data.coco_files import read_references
from tests.tasks.tiny import DATA

from .running import prints

SPEC = DATA["spec"]


def test_the_captions_of_a_split_become_references_of_score(run, tmp_path, capsys):
    references, captions = tmp_path / "new" / "references.json", tmp_path / "captions.json"
    data = ["--data", SPEC, "--split", "test"]
    prints(capsys, "references", *data, "--output", references)
    rows = load_data(SPEC, "test")
    assert read_references(references) == {row["image_id"]: row["captions"] for row in rows}

    scores = json.loads(prints(capsys, "evaluate", "--model", run, *data, "--output", captions))
    scored = prints(capsys, "score", "--predictions", captions, "--references", references)
    printed = dict(line.split() for line in scored.splitlines()[:-1])
    assert printed["cider_d"] == f"{scores['cider_d']:.4f}" and printed["bleu_4"] == f"{scores['bleu_4']:.4f}"
