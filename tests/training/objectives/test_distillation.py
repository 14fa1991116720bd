"""Distillation on sampled captions, against loops over words and their probabilities."""

import math

import pytest
import torch

from hf_ngsan import NGSANForConditionalGeneration
from hf_ngsan.training.objectives.distillation import OnPolicyDistillation
from hf_ngsan.training.objectives.policy import Policy
from hf_ngsan.training.task import Update
from tests.tables import each_row

from .toy_policy import toy_captioner

UNKNOWN, NUM_WORDS, LONGEST, SAMPLES = 3, 12, 6, 3


def captioner(seed: int) -> NGSANForConditionalGeneration:
    torch.manual_seed(seed)
    model = toy_captioner(seed, NUM_WORDS, dropout=0.0, attention_dropout=0.0)
    model.generation_config.suppress_tokens = [UNKNOWN]
    return model


@pytest.fixture(scope="module")
def batch():
    torch.manual_seed(9)
    corners = torch.rand(4, 5, 2, 2).sort(dim=2).values.flatten(2)
    visual = {
        "visual_features": torch.rand(4, 5, 3),
        "visual_boxes": corners,
        "attention_mask": torch.ones(4, 5).long(),
    }
    return {**visual, "row_index": torch.arange(4), "labels": torch.zeros(8, 2).long()}


def objective_of(student, teacher, temperature=1.0):
    return OnPolicyDistillation(teacher, Policy.of(student, max_new_tokens=LONGEST), SAMPLES, temperature)


@each_row("temperature", [1.0, 2.0])
def test_the_loss_is_the_divergence_from_the_teacher_after_every_drawn_word(batch, temperature):
    student, teacher = captioner(0), captioner(1)
    objective = objective_of(student, teacher, temperature)
    inputs = objective.prepare_batch(student, batch, Update(0, 0))
    labels, words = inputs["labels"], inputs["decoder_input_ids"]
    assert len(labels) == 4 * SAMPLES and not set(labels.flatten().tolist()) & {0, 1, UNKNOWN}
    loss, statistics = objective.loss(student, inputs)

    visual = {name: batch[name] for name in ("visual_features", "visual_boxes", "attention_mask")}
    with torch.no_grad():
        student_logits, taught = (
            model(**visual, decoder_input_ids=words).logits.tolist() for model in (student, teacher)
        )
    expected, places = 0.0, 0
    for row in range(len(labels)):
        for place in range(labels.shape[1]):
            if labels[row, place] == -100:
                continue
            places += 1
            p, q = (
                [math.exp(logits[row][place][word] / temperature) for word in range(NUM_WORDS) if word not in (0, 1, 3)]
                for logits in (taught, student_logits)
            )
            divergence = sum(a / sum(p) * math.log(a / sum(p) / (b / sum(q))) for a, b in zip(p, q, strict=True))
            expected += temperature**2 * divergence
    assert loss.item() == pytest.approx(expected, rel=1e-4)
    assert objective.weight(inputs).item() == statistics["words"].item() == places
    assert objective.summary({name: value.item() for name, value in statistics.items()})["caption_length"] == (
        places / len(labels)
    )
