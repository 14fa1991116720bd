"""A translator is trained on files, scored, averaged over checkpoints, and translates sentences."""

import io
import json
import logging
import math

import pytest
import sacrebleu
import torch

from hf_ngsan.cli import main
from hf_ngsan.data import DataError
from hf_ngsan.loading.models import load_model
from hf_ngsan.tasks import train
from hf_ngsan.tasks.translation import (
    TranslationConfig,
    TranslationTask,
    collate_pairs,
    load_pairs,
    score_translations,
    translate_batch,
    translate_rows,
    with_lengths,
)
from tests.commands.running import fails, prints
from tests.tables import each_row
from tests.tasks.tiny_translation import tiny_sections


def config_of(sections: dict) -> TranslationConfig:
    return TranslationConfig.from_dict(sections)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run, with its text files, and its result."""
    folder = tmp_path_factory.mktemp("translation")
    return folder, train(config_of(tiny_sections(folder, epochs=14, keep_checkpoints=3)))


@pytest.fixture(scope="module")
def translator(trained):
    return load_model(trained[0] / "run", "translation")


def test_training_teaches_the_language(trained, translator):
    folder, result = trained
    losses = [entry["loss"] for entry in result.history]
    assert losses[-1] < losses[0] / 2
    assert result.best_score == result.history[-1]["bleu"]
    rows = load_pairs(f"parallel:{folder / 'text'},source=en,target=de", "test")
    best, _ = score_translations(translate_rows(*translator, rows, num_beams=1), rows["target"][:])
    assert best["chrf"] > 20


def test_a_batch_holds_a_number_of_tokens_and_what_the_model_asks_for(tmp_path):
    task = TranslationTask(config_of(tiny_sections(tmp_path)))
    rows = task.load_rows("train")
    model, tokenizer = task.build(rows)
    rows = task.training_rows(model, tokenizer, rows)
    sampler = task.sampler(rows)(epoch=1, num_processes=1, process_index=0)
    seen = []
    for indices in sampler:
        batch = collate_pairs(tokenizer, [rows[index] for index in indices])
        assert max(batch["input_ids"].numel(), batch["labels"].numel()) <= 60
        assert torch.equal(batch["attention_mask"], (batch["input_ids"] != 0).long())
        assert (batch["labels"] == 2).sum() == (batch["input_ids"] == 2).sum() == len(indices)
        seen += indices
    assert sorted(seen) == list(range(len(rows)))
    text = tokenizer.decode(batch["labels"][0][batch["labels"][0] != -100], skip_special_tokens=True).strip()
    assert text == rows[indices[0]]["target"]


def test_pairs_beyond_the_limit_are_counted_named_and_not_trained_on(tmp_path, caplog, translator):
    (tmp_path / "train.en").write_text("A dog runs here.\n" + "A dog " * 20 + "\nA cat sings now.\n")
    (tmp_path / "train.de").write_text("Ein Hund läuft hier.\nEin Hund.\nEine Katze singt jetzt.\n")
    data = f"parallel:{tmp_path},source=en,target=de"
    rows, tokenizer = load_pairs(data, "train"), translator[1]
    with caplog.at_level(logging.WARNING, logger="hf_ngsan"):
        kept = with_lengths(rows, tokenizer, 12, data)
    assert kept["line"][:] == [1, 3] and max(kept["length"][:]) <= 12
    [message] = [record.getMessage() for record in caplog.records]
    assert "1 of 3" in message and "12 tokens" in message and "line 2" in message
    with pytest.raises(DataError, match=r"data\.max_length"):
        with_lengths(rows, tokenizer, 2, data)
    with pytest.raises(DataError, match=r"1 of 3 .*30 tokens.*line 2"):
        translate_rows(*translator, rows)


@each_row(
    ("section", "change", "named"),
    [
        ("model", {"vocab_size": 300}, "vocab_size"),
        ("data", {"vocab_size": 200}, "vocab_size"),
        ("training", {"drop_last": True}, "drop_last"),
        ("evaluation", {"metric": "cider_d"}, "cider_d"),
    ],
)
def test_configs_that_cannot_be_are_refused(section, change, named, tmp_path):
    sections = tiny_sections(tmp_path)
    sections[section] |= change
    with pytest.raises(ValueError, match=named):
        train(config_of(sections))


def test_the_command_scores_translations_with_their_signature(trained, translator, tmp_path, capsys):
    data = f"parallel:{trained[0] / 'text'},source=en,target=de"
    output = tmp_path / "translations.txt"
    options = ["--data", data, "--limit", 3, "--output", output]
    scores = json.loads(prints(capsys, "evaluate", "--model", trained[0] / "run", *options))
    rows = load_pairs(data, "test", 3)
    expected = translate_rows(*translator, rows)
    assert output.read_text(encoding="utf-8") == "".join(f"{line}\n" for line in expected)
    actual, signatures = score_translations(expected, rows["target"][:])
    assert scores == {**actual, "signatures": signatures}
    for wrong in (["--metrics", "bleu"], ["--folds", 3]):
        assert wrong[0] in fails(capsys, "evaluate", "--model", trained[0] / "run", *options, *wrong)
    assert "source" in fails(capsys, "evaluate", "--model", trained[0] / "run", "--data", "scenes:size=3,test=2")
    assert "image_id" in fails(capsys, "references", "--data", data, "--output", tmp_path / "references.json")


def test_the_command_translates_arguments_files_and_the_standard_input(
    trained, translator, tmp_path, capsys, monkeypatch
):
    run, lines = trained[0] / "run", ["A dog runs here.", "", "A cat sings now."]
    expected = [translate_batch(*translator, [line])[0][0] if line else "" for line in lines]
    assert prints(capsys, "translate", "--model", run, lines[0], lines[2]).splitlines() == expected[::2]
    (tmp_path / "in.en").write_text("\r\n".join(lines) + "\r\n")
    capsys.readouterr()
    assert prints(capsys, "translate", "--model", run, "--input", tmp_path / "in.en").splitlines() == expected
    prints(capsys, "translate", "--model", run, "--input", tmp_path / "in.en", "--output", tmp_path / "out")
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines() == expected
    stream = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()))
    monkeypatch.setattr("sys.stdin", stream)
    assert prints(capsys, "translate", "--model", run, "--batch-size", 2).splitlines() == expected


def test_lines_that_cannot_be_translated_are_counted_and_named(trained, tmp_path, capsys):
    run = trained[0] / "run"
    (tmp_path / "in").write_text("A dog.\n\n" + "A dog " * 40 + "\nA cat.\n")
    message = fails(capsys, "translate", "--model", run, "--input", tmp_path / "in")
    assert "Line 3" in message and "30" in message
    capsys.readouterr()
    assert main(["translate", "--model", str(run), "--input", str(tmp_path / "in"), "--skip-errors"]) == 0
    printed = capsys.readouterr()
    assert [bool(line) for line in printed.out.splitlines()] == [True, False, False, True]
    assert "1 empty line" in printed.err and "line 3" in printed.err and "(1 in total)" in printed.err
    (tmp_path / "bad").write_bytes(b"A dog.\n\xff\n")
    assert "line 2" in fails(capsys, "translate", "--model", run, "--input", tmp_path / "bad")
    assert "absent" in fails(capsys, "translate", "--model", run, "--input", tmp_path / "absent")
    assert "--input" in fails(capsys, "translate", "--model", run, "A dog.", "--input", tmp_path / "in")


def test_bleu_by_hand():
    """Matches of 1- to 4-grams: 13/14, 9/12, 5/10, 2/8; brevity penalty of 14 words against 15."""
    references = ["the cat sat on the mat .", "a dog runs fast through the park ."]
    scores, signatures = score_translations(["the cat sat on a mat .", "a dog runs through the park ."], references)
    precisions = [13 / 14, 9 / 12, 5 / 10, 2 / 8]
    assert scores["bleu"] == pytest.approx(100 * math.exp(1 - 15 / 14) * math.prod(precisions) ** 0.25)
    assert score_translations(references, references)[0] == pytest.approx({"bleu": 100, "chrf": 100})
    for name, parts in (("bleu", {"nrefs:1", "case:mixed", "tok:13a"}), ("chrf", {"nrefs:1", "nc:6"})):
        assert parts | {f"version:{sacrebleu.__version__}"} <= set(signatures[name].split("|"))
