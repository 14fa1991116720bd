"""Captions are sampled in the precision of training, and scores are those of the saved model."""

import pytest
import torch
from accelerate.state import AcceleratorState, GradientState, PartialState
from torch.nn.modules.module import register_module_forward_hook

from hf_ngsan.data import load_data
from hf_ngsan.data.collator import visual_arguments
from hf_ngsan.io.processes import make_accelerator
from hf_ngsan.loading.models import load_captioner
from hf_ngsan.tasks import captioning, train
from hf_ngsan.training.run import precision_of
from tests.tables import each_row
from tests.tasks.tiny import tiny_training_config


@pytest.fixture(autouse=True)
def clean_state():
    """Accelerate has one precision per process, and other tests train with another one."""
    for number in range(2):
        for state in (AcceleratorState, GradientState, PartialState):
            state._reset_state()
        if number == 0:
            yield


@each_row(
    ("capabilities", "precision"),
    [({"avx512_f": True, "avx512_bf16": True}, "bf16"), ({"sve_bf16": True}, "bf16"), ({"avx512_bf16": False}, "no")],
)
def test_auto_is_bf16_where_the_processor_computes_in_it(monkeypatch, capabilities, precision):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    assert precision_of("auto", torch.device("cpu")) == precision
    assert [precision_of(asked, torch.device("cpu")) for asked in (None, "fp16", "bf16")] == ["no", "fp16", "bf16"]
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert precision_of("auto", torch.device("cpu")) == "no"


def test_one_process_trains_in_several_precisions(tmp_path):
    make_accelerator()  # as extraction does
    losses, seen = [], []

    def record(module, inputs, output):
        if isinstance(module, torch.nn.Linear) and module.training:
            seen[-1].add(output.dtype)

    with register_module_forward_hook(record):
        for number, precision in enumerate([None, "bf16", None]):
            seen.append(set())
            config = tiny_training_config(tmp_path / str(number), training={"mixed_precision": precision, "epochs": 1})
            losses.append(train(config).history[-1]["loss"])
    assert seen == [{torch.float32}, {torch.bfloat16}, {torch.float32}] and losses[0] == losses[2]


def test_the_model_that_is_evaluated_is_the_one_that_is_loaded(tmp_path, monkeypatch):
    rows = load_data("scenes:size=30,seed=3", "validation")
    seen = []

    def logits(model, processor) -> torch.Tensor:
        inputs = processor(**visual_arguments([rows[0]]))
        with torch.inference_mode():
            return model(**inputs, decoder_input_ids=torch.tensor([[1, 4, 5]])).logits

    evaluate = captioning.evaluate_captioner

    def recorded(model, processor, *arguments, **options):
        seen.append(logits(model, processor))
        return evaluate(model, processor, *arguments, **options)

    monkeypatch.setattr(captioning, "evaluate_captioner", recorded)
    train(tiny_training_config(tmp_path / "run", training={"mixed_precision": "bf16", "epochs": 1}))
    model, processor = load_captioner(tmp_path / "run" / "last")
    assert torch.equal(seen[-1], logits(model, processor))
