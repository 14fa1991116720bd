import torch
from torch import nn

from hf_ngsan.training import WeightAverage


def test_the_average_follows_its_recurrence():
    model = nn.Linear(2, 1, bias=False)
    average = WeightAverage(model, decay=0.9)
    expected = model.weight.detach().double().clone()
    for step in range(1, 40):
        with torch.no_grad():
            model.weight += 1.0
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * model.weight.detach().double()
    torch.testing.assert_close(average.tensors["weight"].double(), expected, rtol=1e-5, atol=1e-5)


def test_weights_come_back_to_the_bit_even_after_an_error():
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    average = WeightAverage(model, decay=0.5)
    assert "1.running_mean" in average.tensors
    assert "1.num_batches_tracked" not in average.tensors
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    own = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    try:
        with average.applied():
            assert torch.equal(model[0].weight, average.tensors["0.weight"])
            raise RuntimeError
    except RuntimeError:
        pass
    assert all(torch.equal(tensor, own[name]) for name, tensor in model.state_dict().items())


def test_tied_weights_are_averaged_once():
    model = nn.Module()
    model.embedding = nn.Embedding(4, 2)
    model.head = nn.Linear(2, 4, bias=False)
    model.head.weight = model.embedding.weight
    average = WeightAverage(model, decay=0.5)
    with torch.no_grad():
        model.head.weight += 1.0
    average.update(1)
    with average.applied():
        assert torch.equal(model.head.weight, model.embedding.weight)
        assert torch.equal(model.head.weight, average.tensors["head.weight"])
