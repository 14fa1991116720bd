import io
import itertools

import numpy as np
from datasets import Dataset

from hf_ngsan.data import caption_features, check_dataset, load_data
from tests.tables import each_row


class Screen(io.StringIO):
    """What stderr is in a terminal, or in a file."""

    def __init__(self, terminal):
        super().__init__()
        self.isatty = lambda: terminal


def prepare_scenes():
    load_data("scenes:size=20", "train")


def check_rows():
    row = {
        "image_id": 1,
        "visual_features": np.zeros((2, 4), np.float16),
        "visual_boxes": np.array([[0, 0, 1, 1]] * 2, np.float32),
        "captions": ["a cat"],
    }
    check_dataset(Dataset.from_list([row] * 3, features=caption_features(4)), name="rows")


@each_row(
    ("work", "words"),
    [(prepare_scenes, "preparing scenes train"), (check_rows, "checking rows")],
)
def test_long_work_shows_a_bar_in_a_terminal_and_nothing_in_a_file(cache, monkeypatch, work, words):
    monkeypatch.setattr("tqdm.std.time", itertools.count(step=60).__next__)
    file, terminal = Screen(terminal=False), Screen(terminal=True)
    monkeypatch.setattr("sys.stderr", file)
    work()
    monkeypatch.setattr("hf_ngsan.data.prepared.cache_directory", lambda: cache / "another")
    monkeypatch.setattr("sys.stderr", terminal)
    work()
    assert file.getvalue() == ""
    assert words in terminal.getvalue()
