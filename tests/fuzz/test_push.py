"""Folders with one thing wrong and much that is not the model's: the model would be uploaded, whole, or nothing.

`HF_NGSAN_FUZZ_SEED=7 pytest -m slow tests/fuzz/test_push.py` tries others.
"""

import os
import random
import shutil
from pathlib import Path

import pytest
import yaml

from hf_ngsan.cli import main
from hf_ngsan.sharing.cards import MAX_VALUE

from .mutations import damage, mutate_json, mutated

SECRET = "hf_SECRETSECRETSECRET"
STRAY = (
    ".env", ".git/config", ".netrc", "notes.ipynb", "optimizer.pt", "checkpoints/step-1/optimizer.pt", "id_rsa",
    "data/train.parquet", "events.out.tfevents.1", "wandb/run.log", "pytorch_model.bin.bak", "model.py", "code/own.py",
    "README.md~", "run.sh", "secrets.json", "evaluations.csv", "a\nb.txt", "<script>.txt",
)  # fmt: skip
HOSTILE = (
    "<script>alert(1)</script>", "](javascript:alert(1))", "---\nlicense: mit\n---", "| a | b |", "`x` {{ 7*7 }}",
    "![](http://evil/x.png)", "\u202egnp.exe", "a" * 50_000, "!!python/object:os.system",
)  # fmt: skip
FEW = 6


def spoil(draw: random.Random, folder: Path) -> None:
    """Puts strange files into the folder of a model, and often changes one of its own."""
    files = sorted(file for file in folder.iterdir() if file.suffix in (".json", ".safetensors"))
    for name in draw.sample(STRAY, draw.randrange(1, 6)):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(SECRET)
    hostile = {"spec": draw.choice(HOSTILE), "train_split": draw.choice(HOSTILE)}
    if draw.random() < 0.5:
        config = {"model": {"init_from": draw.choice(HOSTILE)}, "data": hostile, "training": {"seed": 0}}
        (folder / "training_config.yaml").write_text(
            yaml.safe_dump(mutated(draw, config, ["/etc/passwd"]) if draw.random() < 0.3 else config)
        )
    deed = draw.random()
    if deed < 0.4:
        file = draw.choice(files)
        places = [str(folder.parent / "outside"), "/etc/passwd"]
        (mutate_json if file.suffix == ".json" and file.name != "tokenizer.json" else damage)(draw, file, places)
    elif deed < 0.5:
        (folder / "leak.json").symlink_to("/etc/passwd")
    elif deed < 0.6:
        (folder / "examples").symlink_to("/etc")


@pytest.mark.slow
def test_strange_folders_give_away_nothing(scene_captioner, guest, tmp_path, capsys):
    sources = [scene_captioner, guest("blip"), guest("clip")]
    seed, codes = os.environ.get("HF_NGSAN_FUZZ_SEED", "1"), set()
    (tmp_path / "outside").write_text(SECRET)
    for number in range(FEW):
        draw = random.Random(f"{seed} {number}")
        folder, pushed = tmp_path / f"model-{number}", tmp_path / f"pushed-{number}"
        shutil.copytree(draw.choice(sources), folder)
        spoil(draw, folder)
        before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        licence = draw.choice([[], ["--license", "mit"], ["--license", draw.choice(HOSTILE)[:200]]])
        try:
            code = main(["push", str(folder), "user/model", "--dry-run", str(pushed), *licence])
        except SystemExit as end:
            code = end.code
        errors = capsys.readouterr().err
        codes.add(code)
        told = f"seed {seed}, folder {number}: {code}, {errors[-500:]}"
        assert code in (0, 1, 2) and "Traceback" not in errors, told
        assert {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()} == before, told
        if code != 0:
            assert not pushed.exists(), told
            continue
        for file in pushed.rglob("*"):
            assert not file.is_symlink(), told
            if file.is_file():
                assert SECRET.encode() not in file.read_bytes(), f"{told} {file}"
                assert b"root:x:0" not in file.read_bytes(), f"{told} {file}"
        header, body = (pushed / "README.md").read_text().split("\n---\n", 1)
        facts = yaml.safe_load(header.removeprefix("---\n"))
        assert facts["library_name"] == "transformers", told
        assert "<script" not in body and "](javascript:" not in body and "](http://evil" not in body, told
        assert len(body) < 100 * MAX_VALUE, told
    assert 0 in codes and len(codes) > 1
