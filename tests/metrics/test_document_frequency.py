import numpy as np
import pytest
import torch

from hf_ngsan.metrics import DocumentFrequency
from tests.tables import each_row

from .plain import document_frequencies

CAPTIONS = [["A cat, a mat!", "a cat sleeps"], ["two cats"], ["a dog barks at a cat"]]
TOKENIZED = [["a cat a mat", "a cat sleeps"], ["two cats"], ["a dog barks at a cat"]]


def test_counts_images_not_captions():
    frequency = DocumentFrequency.from_captions(CAPTIONS)
    table = frequency.to_dict()
    assert table == document_frequencies([[c.split() for c in image] for image in TOKENIZED])
    assert table[("a", "cat")] == 2
    assert (frequency.num_documents, len(frequency)) == (3, len(table))
    assert DocumentFrequency.from_captions(TOKENIZED, tokenizer=None).to_dict() == table


@each_row("kind", [list, np.array, torch.tensor])
def test_token_ids_end_with_the_end_token(kind):
    images = [[[1, 5, 6, 2, 0, 0], [1, 5, 2, 9, 9, 2]], [[1, 6, 7, -100, -100]]]
    frequency = DocumentFrequency.from_captions(
        [[kind(caption) for caption in image] for image in images], eos_token_id=2, ignored_token_ids=[1]
    )
    assert frequency.to_dict() == document_frequencies([[[5, 6, 2], [5, 2]], [[6, 7]]])
    assert (frequency.eos_token_id, frequency.ignored_token_ids) == (2, (1,))


def test_saved_and_loaded(tmp_path):
    for number, frequency in enumerate(
        [
            DocumentFrequency.from_captions([*CAPTIONS, ["caf\u00e9 \u732b"]]),
            DocumentFrequency.from_captions([[[4, 5, 2]], [[70_000, 2]]], eos_token_id=2, ignored_token_ids=(0, 1)),
        ]
    ):
        path = tmp_path / "new" / f"{number}.npz"
        frequency.save(path)
        loaded = DocumentFrequency.load(str(path))
        assert loaded.to_dict() == frequency.to_dict()
        for name in ("num_documents", "vocabulary", "eos_token_id", "ignored_token_ids"):
            assert getattr(loaded, name) == getattr(frequency, name)
        assert [file.name for file in path.parent.iterdir() if file.suffix != ".npz"] == []


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "df.npz"
    frequency = DocumentFrequency.from_captions(CAPTIONS)
    frequency.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(np, "savez_compressed", lambda file, **arrays: file.write(b"half") and 1 / 0)
    with pytest.raises(ZeroDivisionError):
        frequency.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_files_of_others(tmp_path):
    pickled = tmp_path / "pickled.npz"
    np.savez(pickled, header=np.array([object()], dtype=object))
    np.savez(tmp_path / "newer.npz", header=np.frombuffer(b'{"format": "something else"}', dtype=np.uint8))
    for path in (pickled, tmp_path / "newer.npz"):
        with pytest.raises(ValueError, match=path.name):
            DocumentFrequency.load(path)


@each_row(
    ("captions", "named"),
    [
        ([["a cat"]], "1"),
        ([["a cat"], []], "image 1"),
        ([["a cat"], [[1, 2]]], "token ids"),
    ],
)
def test_bad_input_is_named(captions, named):
    with pytest.raises(ValueError, match=named):
        DocumentFrequency.from_captions(captions)


def test_digest_of_the_training_captions(metric_reference):
    digest = metric_reference.read("cider_train_df")
    frequency = DocumentFrequency.from_captions(metric_reference.captions("train").values())
    assert frequency.num_documents == digest["n_documents"]
    table = frequency.to_dict()
    for n, order in digest["orders"].items():
        counts = {" ".join(ngram): count for ngram, count in table.items() if len(ngram) == int(n)}
        assert sum(counts.values()) == order["sum_of_df"]
        assert sum(count == 1 for count in counts.values()) == order["df_equal_1"]
        assert {ngram: counts[ngram] for ngram, _ in order["top"]} == dict(order["top"])
