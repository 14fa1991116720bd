import pytest
import torch
from torch import nn
from torch.nn import functional

from hf_ngsan.training.objectives.contrastive import RowDropout, hashed
from tests.tables import each_row


def splitmix64(state: int) -> int:
    mask = 2**64 - 1
    state = (state + 0x9E3779B97F4A7C15) & mask
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return state ^ (state >> 31)


def test_the_hash_is_splitmix64():
    numbers = [0, 1, 12345, 2**40 + 7, -1, -(2**50)]
    expected = [splitmix64(number % 2**64) for number in numbers]
    assert [number % 2**64 for number in hashed(torch.tensor(numbers)).tolist()] == expected


def drop(rows, shape, p=0.4, seed=3, step=5):
    with RowDropout(torch.tensor(rows), seed, step):
        return functional.dropout(torch.ones(shape), p)


def test_a_rows_mask_does_not_depend_on_the_rows_beside_it_or_on_padding():
    whole = drop([4, 7, 9], (3, 6, 5))
    assert torch.equal(drop([9, 4], (2, 6, 5)), whole[[2, 0]])
    assert torch.equal(drop([7], (1, 4, 5)), whole[1:2, :4])
    assert torch.equal(drop([4, 7, 9], (3, 6, 5)), whole)


def test_masks_differ_between_rows_updates_seeds_calls_and_parts_of_a_row():
    masks = [drop([4], (1, 64)), drop([5], (1, 64)), drop([4], (1, 64), step=6), drop([4], (1, 64), seed=4)]
    with RowDropout(torch.tensor([4]), 3, 5):
        first, second = (functional.dropout(torch.ones(2, 64), 0.4) for _ in range(2))
    masks += [second[:1], first[1:]]
    assert torch.equal(first[:1], masks[0])
    assert len({tuple(mask.flatten().tolist()) for mask in masks}) == 6


def test_values_are_kept_with_probability_one_minus_p_and_scaled():
    kept = drop(list(range(200)), (200, 500), p=0.3)
    assert kept.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    assert float((kept > 0).float().mean()) == pytest.approx(0.7, abs=0.01)
    means = (kept > 0).float().mean(0)
    assert float(means.std()) == pytest.approx((0.3 * 0.7 / 200) ** 0.5, rel=0.2)
    everything = drop([1, 2], (2, 8), p=1.0)
    assert torch.equal(everything, torch.zeros(2, 8))


def test_modules_drop_in_training_mode_only_and_in_place_where_asked():
    states = torch.ones(2, 50)
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        assert torch.equal(nn.Dropout(0.5).eval()(states), states)
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        dropped = nn.Dropout(0.5, inplace=True)(states)
    assert dropped is states
    assert torch.equal(dropped, drop([1, 2], (2, 50), p=0.5, seed=0, step=0))


@each_row(
    ("mask", "options"),
    [
        (None, {}),
        (None, {"is_causal": True}),
        (None, {"scale": 0.3}),
        ("bool", {}),
        ("float", {}),
        ("float", {"scale": 2}),
    ],
)
def test_attention_is_softmax_with_a_mask_of_its_own(mask, options):
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, 5, 8, generator=generator).double()
    allowed = torch.rand(5, 5, generator=generator) > 0.3
    allowed |= torch.eye(5, dtype=torch.bool)
    bias = {None: None, "bool": allowed, "float": torch.randn(5, 5, generator=generator).double()}[mask]
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        dropped = functional.scaled_dot_product_attention(query, key, value, bias, dropout_p=0.5, **options)
    identity = torch.eye(5).double().expand(2, 4, 5, 5)
    weights = functional.scaled_dot_product_attention(query, key, identity, bias, **options)
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        expected = functional.dropout(weights, 0.5) @ value
    torch.testing.assert_close(dropped, expected)
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        plain = functional.scaled_dot_product_attention(query, key, value, bias, **options)
    torch.testing.assert_close(plain, weights @ value)


def test_tensors_that_are_not_of_rows_take_the_masks_of_the_generator():
    states = torch.ones(5, 40)
    with RowDropout(torch.tensor([1, 2]), 0, 0):
        torch.manual_seed(1)
        ours = functional.dropout(states, 0.5)
    torch.manual_seed(1)
    assert torch.equal(ours, functional.dropout(states, 0.5))
