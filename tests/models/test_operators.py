"""A training step uses few operators, and none that waits for the device."""

import copy
from collections import Counter

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hf_ngsan.models.attention import InstanceNorm
from tests.models import tiny
from tests.models.architectures import ARCHITECTURES, LABELS, every_variant, make
from tests.models.mcan import tiny as mcan
from tests.tables import each_row

WAITING = ("aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal", "aten::masked_select")
NOT_RUN = ("aten::empty", "aten::_unsafe_view", "aten::detach", "profiler::")


class Operators(TorchDispatchMode):
    """Counts operators that compute; forbids `item()`, `bool()` and others that read a tensor's values on the host."""

    def __init__(self):
        super().__init__()
        self.names = Counter()

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        name = operator.name()
        masked = [index for index in args[1] if index is not None] if name.startswith("aten::index.") else []
        assert not name.startswith(WAITING) and not any(index.dtype == torch.bool for index in masked), name
        if not operator.is_view and not name.startswith(NOT_RUN):
            self.names[name] += 1
        return operator(*args, **(kwargs or {}))


def step(model, inputs, optimizer=None) -> Counter:
    with Operators() as operators:
        model(**inputs).loss.backward()
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
    return operators.names


@each_row("mode", ["train", "eval"])
@every_variant
def test_no_forward_reads_values_of_tensors(name, variant, mode):
    model = getattr(make(name, variant), mode)()
    for inputs in (ARCHITECTURES[name].inputs(), {"attention_mask": None}):
        step(model, {**ARCHITECTURES[name].inputs(), **inputs, "labels": LABELS})


def test_no_forward_of_mcan_reads_values_of_tensors():
    inputs = mcan.random_inputs([4, 2], [5, 3])
    step(mcan.tiny_model(geometric_bias=["query"]).train(), {**inputs, "labels": torch.rand(2, len(mcan.ANSWERS))})


@each_row(("lengths", "most"), [([6, 6, 6, 6], 900), ([6, 1, 2, 4], 975)])
def test_operators_of_a_step_of_ng_san(lengths, most):
    """Images with equally many regions need no mask. With an operator for each part of a layer a step had 1,085."""
    model = tiny.tiny_captioner(num_hidden_layers=4).train()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    inputs = {**tiny.random_images(lengths), "labels": LABELS}
    step(model, inputs, optimizer)
    assert 500 < step(model, inputs, optimizer).total() <= most


@each_row("lengths", [[6, 6, 6, 6], [6, 1, 2, 4]])
def test_gradients_of_training_are_those_of_the_single_operators(lengths):
    """In evaluation, each projection is a separate product, and the norm consists of several operators."""
    model = tiny.tiny_captioner(dropout=0.0, attention_dropout=0.0, query_norm="instance", key_norm="instance")
    alone, inputs = copy.deepcopy(model), {**tiny.random_images(lengths), "labels": LABELS}
    step(model.train(), inputs)
    step(alone.eval(), inputs)
    for (name, weight), other in zip(model.named_parameters(), alone.parameters(), strict=True):
        torch.testing.assert_close(weight.grad, other.grad, rtol=1e-4, atol=2e-5, msg=name)


@each_row("lengths", [None, [5, 2, 3]])
def test_gradient_of_instance_normalization(lengths):
    norm = InstanceNorm(4).double()
    mask = None if lengths is None else torch.arange(5) < torch.tensor(lengths)[:, None]
    states = torch.randn(3, 5, 4, requires_grad=True)
    gradient = torch.randn(3, 5, 4)
    actual = [torch.autograd.grad(module(states, mask), states, gradient)[0] for module in (norm.train(), norm.eval())]
    assert actual[0].abs().max() > 0.1
    assert (actual[0] - norm.train()(states, mask).detach()).abs().max() > 0.1
    torch.testing.assert_close(*actual, rtol=1e-4, atol=1e-5)


def test_reading_a_value_is_noticed():
    with Operators(), pytest.raises(AssertionError, match="_local_scalar_dense"):
        bool(torch.ones(2).all())
    with Operators(), pytest.raises(AssertionError, match="index"):
        torch.ones(2)[torch.tensor([True, False])]


@torch.no_grad()
def test_beams_stay_where_a_cuda_graph_expects_them():
    model, inputs = tiny.tiny_captioner(), tiny.random_images([6, 6])
    states, plain = set(), model.forward

    def forward(*args, **kwargs):
        outputs = plain(*args, **kwargs)
        layers = [part.layers[0] for part in (outputs.cache.self_attention_cache, outputs.cache.cross_attention_cache)]
        states.update((layer.keys.data_ptr(), layer.values.data_ptr()) for layer in layers)
        return outputs

    model.forward = forward
    model.generate(**inputs, num_beams=3, cache_implementation="static", max_new_tokens=8, min_new_tokens=8)
    assert len(states) == 2
