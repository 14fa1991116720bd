"""Published files of word vectors in a new model, and invalid files."""

import numpy as np
import torch

from hf_ngsan.tasks import new_dual_encoder
from hf_ngsan.tasks.new_models import read_word_vectors
from tests.tables import each_row
from tests.tasks.tiny_retrieval import tiny_training_config


def test_word_vectors_of_a_file(tmp_path):
    (tmp_path / "glove.txt").write_text("2 8\nred 1 2 3 4 5 6 7 8\nzebra 1 1 1 1 1 1 1 1\n")
    np.save(tmp_path / "table.npy", np.arange(24).reshape(3, 8) / 10)
    (tmp_path / "words.txt").write_text("red\nblue\nred\n")
    for data, expected in (
        ({"word_vectors": str(tmp_path / "glove.txt")}, torch.arange(1.0, 9)),
        (
            {"word_vectors": str(tmp_path / "table.npy"), "dictionary": str(tmp_path / "words.txt")},
            torch.arange(16, 24) / 10,
        ),
    ):
        model, processor = new_dual_encoder(tiny_training_config(tmp_path, data=data), ["a red blue box"], 10)
        word = processor.tokenizer.convert_tokens_to_ids("red")
        torch.testing.assert_close(model.text.embed_tokens.weight[word].detach(), expected)


@each_row(
    "contents",
    ["zebra 1 1\nblue 1 2\nred name@domain.com 3 4\n. . . 5 6\n", "2 2\nblue 1 2 \nzebra 3 4 \n", "blue 1 2\r\n"],
)
def test_word_vectors_as_they_are_published(tmp_path, contents):
    """Words with spaces, and spaces after the last number."""
    path = tmp_path / "vectors.txt"
    path.write_bytes(contents.encode())
    actual = read_word_vectors(str(path), None, ["red", "blue", "."])
    assert {word: vector.tolist() for word, vector in actual.items()} == {"blue": [1.0, 2.0]}
