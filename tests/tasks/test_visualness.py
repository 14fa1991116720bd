"""The table of visual words, against loops, and the command that prints and draws it."""

import math

import pytest

from hf_ngsan.loading.models import load_captioner, save_model
from hf_ngsan.models.processing_rstnet import RSTNetProcessor
from hf_ngsan.tasks.caption_rows import load_rows
from hf_ngsan.tasks.captioning_analysis import captions_with_visualness, visualness_of_words
from tests.commands.running import prints
from tests.models.rstnet.tiny import tiny_captioner
from tests.models.tiny import tiny_tokenizer
from tests.tables import each_row

SPEC = "scenes:size=12,images=true"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    folder = tmp_path_factory.mktemp("rstnet")
    captioner = tiny_captioner(visual_feature_size=10)
    captioner.generation_config.max_new_tokens = 8
    captioner.generation_config.min_new_tokens = 4
    captioner.generation_config.no_repeat_ngram_size = 1  # many words
    save_model(captioner, RSTNetProcessor(tokenizer=tiny_tokenizer()), folder)
    return str(folder)


def test_the_mean_is_over_occurrences_alone():
    table = visualness_of_words([[("a", 0.2), ("dog", 0.9)], [("a", 0.4), ("a", 0.6)], [("cat", 0.9)], []])
    assert [(entry.word, entry.occurrences) for entry in table] == [("cat", 1), ("dog", 1), ("a", 3)]
    assert [entry.mean for entry in table] == pytest.approx([0.9, 0.9, 0.4])
    assert [entry.std for entry in table] == pytest.approx([0.0, 0.0, math.sqrt((0.04 + 0 + 0.04) / 3)])


@each_row("options", [{"num_beams": 1}, {"num_beams": 3}])
def test_captions_are_those_of_generate_whatever_the_batch(options, folder):
    model, processor = load_captioner(folder)
    rows = load_rows(SPEC, "test").select_columns(["image_id", "visual_features", "visual_boxes"])
    actual = captions_with_visualness(model, processor, rows, batch_size=4, **options)
    assert len(actual) == len(rows)
    for row, caption in zip(rows, actual, strict=True):
        inputs = processor(visual_features=[row["visual_features"]], visual_boxes=[row["visual_boxes"]])
        output = model.generate(**inputs, **options, return_visualness=True, return_dict_in_generate=True)
        [text] = processor.batch_decode(output.sequences, skip_special_tokens=True)
        assert " ".join(word for word, _ in caption) == text
        special = processor.tokenizer.all_special_ids
        pairs = zip(output.sequences[0].tolist(), output.visualness[0].tolist(), strict=True)
        expected = [value for token, value in pairs if token not in special]
        assert [value for _, value in caption] == pytest.approx(expected, abs=1e-5)


def test_the_command_prints_the_table_and_draws_figures(folder, tmp_path, capsys):
    figures = tmp_path / "figures"
    arguments = ["--data", SPEC, "--num-beams", 1, "--limit", 3, "--figures", figures]
    header, *lines = prints(capsys, "visualness", "--model", folder, *arguments).splitlines()
    assert header.split("\t") == ["word", "visualness", "count", "std"]
    model, processor = load_captioner(folder)
    rows = load_rows(SPEC, "test", limit=3)
    table = visualness_of_words(captions_with_visualness(model, processor, rows, num_beams=1))
    assert [line.split("\t")[::2] for line in lines] == [[entry.word, str(entry.occurrences)] for entry in table]
    for line, entry in zip(lines, table, strict=True):
        assert [float(value) for value in line.split("\t")[1::2]] == pytest.approx([entry.mean, entry.std], abs=1e-4)
    names = {"words.png", *(f"{image_id}.png" for image_id in rows["image_id"])}
    assert {path.name for path in figures.iterdir()} == names
