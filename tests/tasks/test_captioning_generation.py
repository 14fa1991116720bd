import pytest
import torch

from hf_ngsan.data import extra_scores_of, relation_prompts, score_objects, score_relation_completions
from hf_ngsan.tasks import evaluate_captioner, generate_captions, new_captioner
from hf_ngsan.tasks.caption_rows import load_rows, visual_feature_size
from hf_ngsan.tasks.captioning_generation import caption_batch
from hf_ngsan.training.batches import take

from .tiny import DATA, tiny_training_config


@pytest.fixture(scope="module")
def rows():
    return load_rows(DATA["spec"], "train").select(range(12))


@pytest.fixture(scope="module")
def captioner(rows):
    """Large random weights: a captioner with a different caption for every image."""
    torch.manual_seed(0)
    config = tiny_training_config("unused", model={"initializer_range": 1.0})
    captions = [caption for row in rows["captions"] for caption in row]
    model, processor = new_captioner(config, captions, visual_feature_size(rows))
    return model.eval(), processor


def test_captions_are_those_of_the_rows_whatever_the_batches(captioner, rows):
    alone = [caption for row in rows for caption in caption_batch(*captioner, [row])]
    assert len(alone) == len(rows)
    assert len(set(alone)) > 6
    for batch_size in (1, 5, 100):
        assert generate_captions(*captioner, rows, batch_size=batch_size) == alone, batch_size


def test_a_prefix_begins_the_caption(captioner, rows):
    batch = take(rows, [0, 1])
    prefixes = [relation_prompts(row)[0].text for row in batch]
    captions = caption_batch(*captioner, batch, prefixes=prefixes)
    for caption, prefix in zip(captions, prefixes, strict=True):
        assert caption.startswith(prefix)
        assert len(caption) > len(prefix)


def test_scores_belong_to_the_captions(captioner, rows):
    from hf_ngsan.metrics import CaptionMetrics

    extra_scores = extra_scores_of("scenes")
    evaluation = evaluate_captioner(*captioner, rows, metrics=["bleu", "rouge_l"], extra_scores=extra_scores)
    assert evaluation.captions == generate_captions(*captioner, rows)
    assert [result["image_id"] for result in evaluation.results] == list(rows["image_id"])
    metric = CaptionMetrics(metrics=["bleu", "rouge_l"])
    expected = metric.compute(predictions=evaluation.captions, references=list(rows["captions"]))
    assert expected.items() <= evaluation.scores.items()
    assert evaluation.scores["objects"] == score_objects(evaluation.captions, rows)


def test_relations_are_scored_on_greedy_completions(captioner, rows):
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
                ids = model.generate(**inputs, num_beams=1, do_sample=False, length_penalty=None, max_new_tokens=6)
            texts += processor.batch_decode(ids, skip_special_tokens=True)
        completions.append(texts)
    report = score_relation_completions(completions, list(rows))
    expected = {group: report[group] for group in ("symmetric", "directional")}
    scores = evaluate_captioner(model, processor, rows, extra_scores=extra_scores_of("scenes"), batch_size=7).scores
    assert {group: scores[group] for group in expected} == expected
