from types import SimpleNamespace

import pytest
import torch

from hf_ngsan.training import batches as batches_module
from hf_ngsan.training.batches import UpdateBatches, map_sharded, update_loader
from tests.tables import each_row


def collate(rows):
    return {"rows": torch.tensor(rows)}


def test_a_share_without_rows_is_a_filler_and_loading_leaves_the_random_state_alone():
    batches = UpdateBatches(list(range(10, 20)), collate, [[3, 1, 2], [], [9]], num_parts=2)
    torch.manual_seed(0)
    before = torch.get_rng_state()
    loaded = list(update_loader(batches, first=0, num_workers=0))
    assert torch.equal(torch.get_rng_state(), before)
    values = [[(batch.inputs["rows"].tolist(), batch.num_rows) for batch in update] for update in loaded]
    assert values == [[([13], 1), ([11, 12], 2)], [([10], 0)], [([19], 1)]]


def test_loading_starts_in_the_middle_and_in_other_processes():
    shares = [[9 - index] for index in range(10)]
    batches = UpdateBatches(list(range(10, 20)), collate, shares, num_parts=1, with_row_index=True)
    loaded = list(update_loader(batches, first=7, num_workers=1))
    assert [update[0].inputs["rows"].item() for update in loaded] == [12, 11, 10]
    assert [update[0].inputs["row_index"].item() for update in loaded] == [2, 1, 0]


class Rows(list):
    """Rows; one of them cannot be read."""

    def __getitem__(self, index):
        if index == 2:
            raise ValueError("Row 2 is damaged.")
        return super().__getitem__(index)


@each_row("num_workers", [0, 1])
def test_an_error_of_a_row_is_the_same_from_another_process(num_workers):
    batches = UpdateBatches(Rows(range(4)), collate, [[0, 1], [2], [3]], num_parts=1)
    updates = update_loader(batches, first=0, num_workers=num_workers)
    assert next(updates)[0].inputs["rows"].tolist() == [0, 1]
    with pytest.raises(ValueError) as error:
        next(updates)
    assert str(error.value) == "Row 2 is damaged."


@each_row("num_items", [0, 1, 5, 12])
@each_row("num_processes", [1, 2, 3])
def test_processes_share_the_same_batches_without_loss_or_repetition(monkeypatch, num_items, num_processes):
    batches, shares = [], []
    monkeypatch.setattr(batches_module, "gather_object", lambda item: shares.append(item) or item)

    def work(indices):
        batches.append(list(indices))
        return [index * 10 for index in indices]

    for process_index in range(num_processes):
        accelerator = SimpleNamespace(num_processes=num_processes, process_index=process_index)
        map_sharded(work, num_items, 4, accelerator)
    assert sorted(pair for share in shares for pair in share) == [(index, index * 10) for index in range(num_items)]
    expected = [list(range(num_items))[start : start + 4] for start in range(0, num_items, 4)]
    assert sorted(batches) == expected
    everything = [pair for share in shares for pair in share]
    monkeypatch.setattr(batches_module, "gather_object", lambda item: everything)
    assert map_sharded(work, num_items, 4, accelerator) == [index * 10 for index in range(num_items)]
