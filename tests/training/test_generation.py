import io
import json
from types import SimpleNamespace

import pytest
import torch

from hf_ngsan.data import relation_prompts, score_objects, score_relation_completions
from hf_ngsan.training import (
    Evaluation,
    evaluate_captioner,
    generate_captions,
    new_captioner,
    relation_accuracy,
)
from hf_ngsan.training import generation as generation_module
from hf_ngsan.training.generation import caption_batch, share_out
from hf_ngsan.training.rows import load_rows, take, visual_feature_size

from .tiny import DATA, tiny_recipe


@pytest.fixture(scope="module")
def rows():
    return load_rows(DATA["spec"], "train").select(range(12))


@pytest.fixture(scope="module")
def captioner(rows):
    """Large random weights: a captioner that says something else about every image."""
    torch.manual_seed(0)
    recipe = tiny_recipe("unused", model={"initializer_range": 1.0})
    captions = [caption for row in rows["captions"] for caption in row]
    model, processor = new_captioner(recipe, captions, visual_feature_size(rows))
    return model.eval(), processor


def test_captions_do_not_depend_on_the_batches(captioner, rows):
    alone = generate_captions(*captioner, rows, batch_size=1)
    assert len(alone) == len(rows)
    assert len(set(alone)) > 6
    assert generate_captions(*captioner, rows, batch_size=5) == alone
    assert generate_captions(*captioner, rows, batch_size=100) == alone


def test_arguments_reach_generate(captioner, rows):
    def longest(max_new_tokens):
        captions = generate_captions(*captioner, rows, num_beams=1, length_penalty=None, max_new_tokens=max_new_tokens)
        return max(len(caption.split()) for caption in captions)

    assert [longest(2), longest(6)] == [2, 6]


def test_a_prefix_begins_the_caption(captioner, rows):
    batch = take(rows, [0, 1])
    prefixes = [relation_prompts(row)[0].text for row in batch]
    captions = caption_batch(*captioner, batch, prefixes=prefixes)
    for caption, prefix in zip(captions, prefixes, strict=True):
        assert caption.startswith(prefix)
        assert len(caption) > len(prefix)


@pytest.mark.parametrize("num_items", [0, 1, 5, 12])
@pytest.mark.parametrize("num_processes", [1, 2, 3])
def test_processes_share_the_same_batches_without_loss_or_repetition(monkeypatch, num_items, num_processes):
    batches, shares = [], []
    monkeypatch.setattr(generation_module, "gather_object", lambda own: shares.append(own) or own)

    def work(indices):
        batches.append(list(indices))
        return [index * 10 for index in indices]

    for process_index in range(num_processes):
        accelerator = SimpleNamespace(num_processes=num_processes, process_index=process_index)
        share_out(work, num_items, 4, accelerator)
    assert sorted(pair for share in shares for pair in share) == [(index, index * 10) for index in range(num_items)]
    expected = [list(range(num_items))[start : start + 4] for start in range(0, num_items, 4)]
    assert sorted(batches) == expected
    everything = [pair for share in shares for pair in share]
    monkeypatch.setattr(generation_module, "gather_object", lambda own: everything)
    assert share_out(work, num_items, 4, accelerator) == [index * 10 for index in range(num_items)]


@pytest.mark.parametrize(("terminal", "process_index", "shown"), [(True, 0, True), (True, 1, False), (False, 0, False)])
def test_only_the_main_process_shows_a_bar_and_only_in_a_terminal(monkeypatch, terminal, process_index, shown):
    screen = io.StringIO()
    screen.isatty = lambda: terminal
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(generation_module, "gather_object", lambda own: own)
    share_out(list, 4, 2, SimpleNamespace(num_processes=2, process_index=process_index))
    assert ("captioning" in screen.getvalue()) == shown


def test_an_evaluation_is_saved_in_the_coco_result_format(tmp_path):
    Evaluation([7, 3], ["a cat", "ein Hündchen"], {}).save(tmp_path / "r.json")
    results = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert results == [{"image_id": 7, "caption": "a cat"}, {"image_id": 3, "caption": "ein Hündchen"}]


def test_scores_belong_to_the_captions(captioner, rows):
    from hf_ngsan.metrics import CaptionMetrics

    evaluation = evaluate_captioner(*captioner, rows, metrics=["bleu", "rouge_l"], relations=True)
    assert evaluation.captions == generate_captions(*captioner, rows)
    assert evaluation.image_ids == list(rows["image_id"])
    metric = CaptionMetrics(metrics=["bleu", "rouge_l"])
    expected = metric.compute(predictions=evaluation.captions, references=list(rows["captions"]))
    expected |= relation_accuracy(*captioner, rows) | {"objects": score_objects(evaluation.captions, rows)}
    assert evaluation.scores == pytest.approx(expected)


def test_relation_accuracy_is_the_scorers_on_greedy_completions(captioner, rows):
    model, processor = captioner
    rows = rows.select(range(4))
    completions = []
    for row in rows:
        texts = []
        for prompt in relation_prompts(row):
            inputs = processor(
                visual_features=[row["visual_features"]], visual_boxes=[row["visual_boxes"]], text=[prompt.text]
            )
            with torch.no_grad():
                ids = model.generate(**inputs, num_beams=1, do_sample=False, length_penalty=None, max_new_tokens=8)
            texts += processor.batch_decode(ids, skip_special_tokens=True)
        completions.append(texts)
    report = score_relation_completions(completions, list(rows))
    expected = {group: report[group] for group in ("symmetric", "directional")}
    assert relation_accuracy(model, processor, rows, batch_size=7) == expected
