"""Visualness in the image-to-text pipeline."""

import pytest
import torch

from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.models.processing_rstnet import RSTNetProcessor
from tests.models.rstnet.tiny import random_grids, tiny_captioner
from tests.models.tiny import tiny_tokenizer
from tests.tables import each_row


@each_row("options", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_every_word_comes_with_its_visualness(options):
    model, tokenizer, grids = tiny_captioner(), tiny_tokenizer(), random_grids(3)
    pipe = CaptioningPipeline(model=model, processor=RSTNetProcessor(tokenizer=tokenizer))
    rows = [{"visual_features": features.numpy()} for features in grids["visual_features"]]
    answers = [answer for of_row in pipe(rows, batch_size=2, return_visualness=True, **options) for answer in of_row]
    output = model.generate(**grids, **options, return_visualness=True, return_dict_in_generate=True)
    assert len(answers) == len(output.sequences)
    for answer, sequence, values in zip(answers, output.sequences, output.visualness, strict=True):
        assert " ".join(word for word, _ in answer["visualness"]) == answer["generated_text"]
        spoken = torch.tensor([token not in tokenizer.all_special_ids for token in sequence.tolist()])
        assert [value for _, value in answer["visualness"]] == pytest.approx(values[spoken].tolist(), abs=1e-5)


def test_a_captioner_without_adaptive_attention_has_none():
    pipe = CaptioningPipeline(
        model=tiny_captioner(adaptive_attention=False), processor=RSTNetProcessor(tokenizer=tiny_tokenizer())
    )
    with pytest.raises(ValueError, match="adaptive attention"):
        pipe({"visual_features": random_grids(1)["visual_features"][0].numpy()}, return_visualness=True)
