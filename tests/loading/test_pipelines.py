"""Inputs of the image-to-text pipeline, and that it returns the texts that the model generates."""

import json

import pytest
import torch
from transformers import pipeline

import hf_ngsan
from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.models.processing_rstnet import RSTNetProcessor
from tests.models.rstnet.tiny import random_grids
from tests.models.rstnet.tiny import tiny_captioner as tiny_rstnet
from tests.models.tiny import one_image, random_images, tiny_captioner, tiny_processor, tiny_tokenizer
from tests.tables import each_row

LENGTHS = [6, 1, 2, 4, 5]


@pytest.fixture(scope="module")
def pipe():
    return CaptioningPipeline(model=tiny_captioner(), processor=tiny_processor())


@pytest.fixture(scope="module")
def rows() -> list[dict]:
    images = random_images(LENGTHS)
    apart = [one_image(images, row) for row in range(len(LENGTHS))]
    return [{name: row[name][0].numpy() for name in ("visual_features", "visual_boxes")} for row in apart]


@pytest.fixture(scope="module")
def captions(rows) -> list[list[dict]]:
    """The captions of generate() for each image alone."""
    model, processor = tiny_captioner(), tiny_processor()
    sequences = [
        model.generate(**processor(visual_features=[r["visual_features"]], visual_boxes=[r["visual_boxes"]]))
        for r in rows
    ]
    return [
        [{"generated_text": text} for text in processor.batch_decode(s, skip_special_tokens=True)] for s in sequences
    ]


@each_row("batch_size", [1, 2, 5, 7])
def test_images_in_any_batch_size(pipe, rows, captions, batch_size):
    assert pipe(rows, batch_size=batch_size) == captions
    assert pipe(json.loads(json.dumps({name: array.tolist() for name, array in rows[0].items()}))) == captions[0]
    assert captions[0] != captions[4]


class Counted:
    """Counts the images that have been taken."""

    def __init__(self, rows: list[dict]):
        self.rows, self.taken = rows, 0

    def __iter__(self):
        for row in self.rows:
            self.taken += 1
            yield row


def test_a_generator_is_streamed(pipe, rows, captions):
    counted = Counted(rows * 4)
    results = pipe((row for row in counted), batch_size=2)
    assert counted.taken <= 1
    assert next(iter(results)) == captions[0]
    assert counted.taken < 8
    assert list(pipe((row for row in rows), batch_size=2)) == captions


@each_row("task", ["image-to-text", "image-text-to-text"])
def test_pipeline_by_task_is_ours_for_our_models(task, rows, captions, tmp_path):
    tiny_captioner().save_pretrained(tmp_path)
    tiny_processor().save_pretrained(tmp_path)
    for model in (str(tmp_path), tiny_captioner()):
        processor = None if isinstance(model, str) else tiny_processor()
        made = pipeline(task, model=model, processor=processor)
        assert type(made) is hf_ngsan.CaptioningPipeline
        assert made(rows) == captions


@each_row("options", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_every_word_comes_with_its_visualness(options):
    model, tokenizer, grids = tiny_rstnet(), tiny_tokenizer(), random_grids(3)
    pipe = CaptioningPipeline(model=model, processor=RSTNetProcessor(tokenizer=tokenizer))
    rows = [{"visual_features": features.numpy()} for features in grids["visual_features"]]
    answers = [answer for group in pipe(rows, batch_size=2, return_visualness=True, **options) for answer in group]
    output = model.generate(**grids, **options, return_visualness=True, return_dict_in_generate=True)
    assert len(answers) == len(output.sequences)
    for answer, sequence, values in zip(answers, output.sequences, output.visualness, strict=True):
        assert " ".join(word for word, _ in answer["visualness"]) == answer["generated_text"]
        spoken = torch.tensor([token not in tokenizer.all_special_ids for token in sequence.tolist()])
        assert [value for _, value in answer["visualness"]] == pytest.approx(values[spoken].tolist(), abs=1e-5)


def test_a_captioner_without_adaptive_attention_has_none():
    pipe = CaptioningPipeline(
        model=tiny_rstnet(adaptive_attention=False), processor=RSTNetProcessor(tokenizer=tiny_tokenizer())
    )
    with pytest.raises(ValueError, match="adaptive_attention"):
        pipe({"visual_features": random_grids(1)["visual_features"][0].numpy()}, return_visualness=True)
