"""Padding, batch, attention, checkpoints and saving do not change results, for every architecture that writes text."""

import shutil

import pytest
import torch

from tests.models.architectures import (
    ARCHITECTURES,
    CLOSE,
    LABELS,
    WORDS,
    every_architecture,
    every_variant,
    logits_of,
    make,
)
from tests.models.tiny import one_image
from tests.tables import each_row

every_implementation = each_row("implementation", ["eager", "sdpa"])
needs_compiler = pytest.mark.skipif(shutil.which("c++") is None, reason="torch.compile on a CPU needs a C++ compiler")
IN_PADDING = {"visual_features": 1000.0, "visual_boxes": torch.tensor([0.9, 0.1, 0.2, 5.0]), "input_ids": 11}


@every_variant
def test_a_batch_is_its_rows_alone(name, variant):
    model, inputs = make(name, variant), ARCHITECTURES[name].inputs()
    together = logits_of(model, inputs)
    for row in range(4):
        alone = logits_of(model, one_image(inputs, row), LABELS[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, **CLOSE)


@every_variant
@every_implementation
def test_what_stands_in_the_padding_changes_nothing(name, variant, implementation):
    model, inputs = make(name, variant, attn_implementation=implementation), ARCHITECTURES[name].inputs()
    expected = logits_of(model, inputs)
    padding = inputs["attention_mask"] == 0
    for item in inputs.keys() & IN_PADDING.keys():
        inputs[item][padding] = IN_PADDING[item]
    torch.testing.assert_close(logits_of(model, inputs), expected, **CLOSE)


@every_variant
def test_more_padding_on_either_side_changes_nothing(name, variant):
    model, inputs = make(name, variant), ARCHITECTURES[name].inputs()
    expected = logits_of(model, inputs)
    for order in (slice(None), slice(None, None, -1)):
        wider = {key: torch.cat([tensor, torch.zeros_like(tensor)][order], dim=1) for key, tensor in inputs.items()}
        torch.testing.assert_close(logits_of(model, wider), expected, **CLOSE)


@every_variant
def test_no_word_sees_those_after_it(name, variant):
    model, inputs = make(name, variant), ARCHITECTURES[name].inputs()
    with torch.no_grad():
        expected = model(**inputs, decoder_input_ids=WORDS).logits
        for position in range(1, 5):
            changed = WORDS.clone()
            changed[:, position] = 3
            logits = model(**inputs, decoder_input_ids=changed).logits
            torch.testing.assert_close(logits[:, :position], expected[:, :position], **CLOSE)
            assert (logits[:, position:] - expected[:, position:]).abs().max() > 1e-2


@every_variant
def test_eager_equals_sdpa(name, variant):
    inputs, results = ARCHITECTURES[name].inputs(), []
    if "visual_boxes" in inputs:  # two equal boxes, and one without an area
        inputs["visual_boxes"][0, 1] = inputs["visual_boxes"][0, 0]
        inputs["visual_boxes"][3, 2, 2:] = inputs["visual_boxes"][3, 2, :2]
    for implementation in ("eager", "sdpa"):
        model = make(name, variant, attn_implementation=implementation)
        loss = model(**inputs, labels=LABELS).loss
        loss.backward()
        gradients = [parameter.grad.flatten() for parameter in model.parameters() if parameter.requires_grad]
        results.append((logits_of(model, inputs), loss.detach(), torch.cat(gradients)))
    torch.testing.assert_close(results[0], results[1], **CLOSE)


@every_variant
def test_half_precision_is_close_and_mixed_precision_trains(name, variant):
    model, inputs = make(name, variant), ARCHITECTURES[name].inputs()
    expected = logits_of(model, inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model.train()(**inputs, labels=LABELS).loss
    loss.backward()
    assert loss.isfinite()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters() if parameter.requires_grad)
    model = make(name, variant).to(torch.bfloat16)
    half = logits_of(model, inputs)
    assert half.dtype == torch.bfloat16
    torch.testing.assert_close(half.float(), expected, rtol=0.15, atol=0.3 if name == "nsa_transformer" else 0.15)


@every_architecture
@each_row("reentrant", [True, False])
def test_gradient_checkpointing_changes_no_gradient(name, variant, reentrant):
    inputs, gradients = ARCHITECTURES[name].inputs(), []
    for checkpointing in (False, True):
        model = make(name, variant).train()
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": reentrant})
        torch.manual_seed(5)
        model(**inputs, labels=LABELS).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters() if parameter.requires_grad])
    assert all(gradient is not None for gradient in gradients[1])
    torch.testing.assert_close(gradients[0], gradients[1], **CLOSE)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("name", "variant", "backend"),
    [
        *((name, "paper", "eager") for name in ("rstnet", "spatial_captioner")),
        *(("ngsan", item, "inductor") for item in ("SAN", "NG-SAN", "everything")),
    ],
)
def test_forward_of_every_kind_of_layer_is_one_graph(name, variant, backend):
    model, inputs = make(name, variant), ARCHITECTURES[name].inputs()
    arguments = {**inputs, "decoder_input_ids": WORDS, "use_cache": False}
    graph = torch.compile(model, fullgraph=True, backend=backend)
    with torch.no_grad():
        torch.testing.assert_close(graph(**arguments).logits, model(**arguments).logits, **CLOSE)
