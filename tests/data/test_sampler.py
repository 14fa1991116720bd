import math
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from hf_ngsan.data import EpochSampler, TokenSampler


def flat(batches):
    return list(chain.from_iterable(batches))


settings = {
    "num_rows": st.integers(0, 60),
    "batch_size": st.integers(1, 20),
    "seed": st.integers(0, 2**32),
    "epoch": st.integers(0, 5),
}


@given(**settings, num_processes=st.integers(1, 6), drop_last=st.booleans(), shuffle=st.booleans())
def test_the_processes_share_the_batches_of_one_process(num_rows, batch_size, num_processes, **rest):
    def batches(number, index):
        return list(EpochSampler(num_rows, batch_size, num_processes=number, process_index=index, **rest))

    (full, shares) = batches(1, 0), [batches(num_processes, index) for index in range(num_processes)]
    assert {len(share) for share in shares} == {len(full)}
    for batch, *parts in zip(full, *shares, strict=True):
        assert flat(parts) == batch
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


@given(**settings)
def test_an_epoch_has_every_row_once(num_rows, batch_size, **rest):
    sampler = EpochSampler(num_rows, batch_size, **rest)
    batches = list(sampler)
    assert sorted(flat(batches)) == list(range(num_rows))
    assert len(batches) == len(sampler) == math.ceil(num_rows / batch_size)
    assert all(len(batch) == batch_size for batch in batches[:-1])


@given(**settings, start=st.integers(0, 60))
def test_a_resumed_epoch_continues_where_it_stopped(num_rows, batch_size, start, **rest):
    full = list(EpochSampler(num_rows, batch_size, **rest))
    start = min(start, len(full))
    resumed = EpochSampler(num_rows, batch_size, start_batch=start, **rest)
    assert list(resumed) == full[start:]
    assert len(resumed) == len(full) - start


def test_order_depends_on_seed_and_epoch_alone():
    def order(**changes):
        return flat(EpochSampler(100, 7, **({"seed": 1, "epoch": 2} | changes)))

    assert order() == order()
    assert len({tuple(order(**changes)) for changes in ({}, {"seed": 2}, {"epoch": 3}, {"seed": 2, "epoch": 1})}) == 4
    sampler = EpochSampler(100, 7, seed=1)
    sampler.set_epoch(2)
    assert flat(sampler) == order()
    sampler.set_epoch(2, start_batch=3)
    assert flat(sampler) == order()[21:]


def test_the_order_is_the_same_forever():
    assert list(EpochSampler(8, 3, seed=5, epoch=1)) == [[2, 0, 6], [1, 5, 7], [4, 3]]


lengths = st.lists(st.integers(1, 20), max_size=60)


@given(lengths, st.integers(1, 80), st.integers(0, 5), st.integers(1, 4))
def test_batches_of_tokens(lengths, batch_tokens, epoch, num_processes):
    """Every row occurs once, no batch is too large unless it has one row, and all epochs have equally many batches."""

    def batches(epoch, number=1, index=0):
        options = {"seed": 3, "epoch": epoch, "num_processes": number, "process_index": index}
        return list(TokenSampler(lengths, batch_tokens, **options))

    full = batches(epoch)
    assert sorted(flat(full)) == list(range(len(lengths)))
    assert len(full) == len(batches(epoch + 1)) == TokenSampler(lengths, batch_tokens, seed=3).batches_per_epoch
    for batch in full:
        assert len(batch) == 1 or len(batch) * max(lengths[row] for row in batch) <= batch_tokens
    shares = [batches(epoch, num_processes, index) for index in range(num_processes)]
    assert [flat(parts) for parts in zip(*shares, strict=True)] == full
