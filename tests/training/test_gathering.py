import io
from types import SimpleNamespace

from hf_ngsan.training import gathering
from hf_ngsan.training.gathering import map_sharded
from tests.tables import each_row


@each_row("num_items", [0, 1, 5, 12])
@each_row("num_processes", [1, 2, 3])
def test_processes_share_the_same_batches_without_loss_or_repetition(monkeypatch, num_items, num_processes):
    batches, shares = [], []
    monkeypatch.setattr(gathering, "gather_object", lambda own: shares.append(own) or own)

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
    monkeypatch.setattr(gathering, "gather_object", lambda own: everything)
    assert map_sharded(work, num_items, 4, accelerator) == [index * 10 for index in range(num_items)]


@each_row(("terminal", "process_index", "shown"), [(True, 0, True), (True, 1, False), (False, 0, False)])
def test_only_the_main_process_shows_a_bar_and_only_in_a_terminal(monkeypatch, terminal, process_index, shown):
    screen = io.StringIO()
    screen.isatty = lambda: terminal
    monkeypatch.setattr("sys.stderr", screen)
    monkeypatch.setattr(gathering, "gather_object", lambda own: own)
    map_sharded(list, 4, 2, SimpleNamespace(num_processes=2, process_index=process_index), description="captioning")
    assert ("captioning" in screen.getvalue()) == shown
