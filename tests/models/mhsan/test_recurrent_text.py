import json

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from hf_ngsan.models.modeling_mhsan_text import SRU
from tests.golden import golden_folder
from tests.tables import each_row

IN_BOTH = ["bi_4layer_tanh", "uni_1layer_proj_tanh", "uni_4layer_tanh"]
RELEASES = {
    "2.1.4": [*IN_BOTH, "uni_1layer_same_tanh", "uni_2layer_v1_norescale"],
    "2.6.0": [
        *IN_BOTH,
        *["bi_1layer_proj", "bi_1layer_same", "bi_4layer_tanh_c0_mask", "bi_4layer_tanh_rescale", "uni_1layer_proj"],
        *["uni_1layer_same", "uni_2layer_noskip", "uni_2layer_v1", "uni_4layer_linear", "uni_4layer_tanh_c0_mask"],
        "uni_4layer_tanh_rescale",
    ],
}


def randomized(sru: SRU, seed: int = 3) -> SRU:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in sru.parameters():
            parameter.copy_(0.6 * torch.randn(parameter.shape, generator=generator))
    return sru.eval()


def load_released(sru: SRU, weights: dict[str, torch.Tensor]) -> None:
    """The columns of released matrices have the order (direction, unit, matrix), vectors (gate, direction, unit)."""
    for index, layer in enumerate(sru.layers):
        released = {name: weights[f"rnn_lst.{index}.{name}"] for name in ("weight", "weight_c", "bias")}
        matrix = released["weight"].unflatten(1, (layer.output_size, -1)).permute(2, 1, 0).flatten(0, 1)
        layer.load_state_dict(
            {
                "projection.weight": matrix,
                "peephole": released["weight_c"].unflatten(0, (2, -1)),
                "bias": released["bias"].unflatten(0, (2, -1)),
            }
        )


@each_row("release, case", [(release, case) for release in RELEASES for case in RELEASES[release]])
def test_agrees_with_the_released_package(release, case):
    folder = golden_folder("sru")
    tensors = load_file(folder / f"sru-{release}.safetensors")
    cases = json.loads((folder / f"sru-{release}.json").read_text())["cases"]
    assert sorted(cases) == sorted(RELEASES[release])
    arguments = cases[case]
    recorded = {name.removeprefix(f"{case}/"): value for name, value in tensors.items() if name.startswith(f"{case}/")}
    weights = {name.removeprefix("param."): value for name, value in recorded.items() if name.startswith("param.")}
    sru = SRU(
        arguments["input_size"],
        arguments["hidden_size"],
        arguments["num_layers"],
        bidirectional=arguments.get("bidirectional", False),
        activation="tanh" if arguments.get("use_tanh") else "identity",
        highway=arguments.get("has_skip_term", True),
        scale_x=weights["rnn_lst.0.scale_x"].item(),
    )
    load_released(sru, weights)
    padding = recorded.get("mask_pad")
    mask = None if padding is None else 1 - padding.long().T
    with torch.no_grad():
        outputs, memory = sru(recorded["x"].transpose(0, 1), mask, recorded.get("c0"))
    torch.testing.assert_close(outputs.transpose(0, 1), recorded["h"], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(memory, recorded["c"], atol=1e-5, rtol=1e-5)


def by_loop(sru: SRU, inputs: torch.Tensor, lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """The equations, one number at a time."""
    activation = {"tanh": torch.tanh, "identity": lambda x: x, "relu": torch.relu}[sru.layers[0].activation]
    rows, memories = [], []
    for row, length in zip(inputs, lengths, strict=True):
        states, finals = list(row[:length]), []
        for layer in sru.layers:
            matrices = layer.projection.weight.unflatten(0, (-1, layer.output_size))
            outputs = [[None] * layer.output_size for _ in range(length)]
            final = []
            for unit in range(layer.output_size):
                backwards = layer.bidirectional and unit >= layer.output_size // 2
                memory = torch.zeros((), dtype=inputs.dtype)
                for time in reversed(range(length)) if backwards else range(length):
                    products = [matrix[unit] @ states[time] for matrix in matrices]
                    forget = torch.sigmoid(products[1] + layer.peephole[0, unit] * memory + layer.bias[0, unit])
                    reset = torch.sigmoid(products[2] + layer.peephole[1, unit] * memory + layer.bias[1, unit])
                    memory = forget * memory + (1 - forget) * products[0]
                    skip = torch.zeros(())
                    if layer.highway:
                        skip = products[3] if len(products) == 4 else layer.scale_x * states[time][unit]
                    outputs[time][unit] = reset * activation(memory) + (1 - reset) * skip
                final.append(memory)
            states = [torch.stack(output) for output in outputs]
            finals.append(torch.stack(final))
        rows.append(torch.stack(states))
        memories.append(torch.stack(finals))
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), torch.stack(memories, 1)


@given(
    input_size=st.integers(1, 4),
    hidden_size=st.integers(1, 2),
    num_layers=st.integers(1, 3),
    bidirectional=st.booleans(),
    activation=st.sampled_from(["tanh", "identity", "relu"]),
    highway=st.booleans(),
    scale_x=st.sampled_from([1.0, 1.7]),
    lengths=st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
def test_outputs_and_gradients_are_those_of_the_equations(lengths, **settings):
    sru = randomized(SRU(**settings)).double()
    inputs = torch.randn(len(lengths), max(lengths), settings["input_size"], dtype=torch.float64)
    inputs = torch.sin(torch.arange(inputs.numel(), dtype=torch.float64)).view_as(inputs).requires_grad_()
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    ours, expected = sru(inputs, mask), by_loop(sru, inputs, lengths)
    gradients = []
    for outputs, memory in (ours, expected):
        weights = torch.cos(torch.arange(outputs.numel(), dtype=torch.float64)).view_as(outputs)
        target = [inputs, *sru.parameters()]
        total = (outputs * weights).sum() + (memory**2).sum()
        gradients.append(torch.autograd.grad(total, target))
    torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(*gradients)


@each_row("bidirectional", [False, True])
def test_padding_before_and_behind_changes_nothing(bidirectional):
    sru = randomized(SRU(4, 3, 3, bidirectional=bidirectional, activation="tanh"))
    words = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(1))
    outputs, memory = sru(words)
    padded = torch.full((1, 9, 4), 7.0)
    padded[:, 1:6] = words
    mask = torch.tensor([[0, 1, 1, 1, 1, 1, 0, 0, 0]])
    padded_outputs, padded_memory = sru(padded, mask)
    torch.testing.assert_close(padded_outputs[:, 1:6], outputs, atol=1e-6, rtol=0)
    torch.testing.assert_close(padded_memory, memory, atol=1e-6, rtol=0)
    assert padded_outputs[mask == 0].abs().max() == 0
