import json

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from hf_ngsan.data import load_data
from hf_ngsan.data.images.rows import first_rows, gather_captions
from tests.data.images.photos import picture_bytes
from tests.tables import each_row

TEXTS = st.sampled_from(["a cat", "a dog", " a\u00e9 ", "", " ", "\n", "\u2003", None])
CELLS = {
    pa.string(): TEXTS,
    pa.large_string(): TEXTS,
    pa.list_(pa.string()): st.none() | st.lists(TEXTS, max_size=3),
    pa.large_list(pa.large_string()): st.none() | st.lists(TEXTS, max_size=3),
    pa.list_(pa.string(), 2): st.lists(TEXTS, min_size=2, max_size=2),
}


def gather_by_loops(columns, owners):
    gathered = [[] for _ in owners]
    for row, owner in enumerate(owners):
        for column in columns:
            cell = column[row] if isinstance(column[row], list) else [column[row]]
            gathered[owner] += [text for text in cell if owner >= 0 and text is not None and text.strip()]
    return gathered


@st.composite
def tables(draw):
    rows = draw(st.integers(1, 6))
    kinds = draw(st.lists(st.sampled_from(list(CELLS)), min_size=1, max_size=3))
    columns = [draw(st.lists(CELLS[kind], min_size=rows, max_size=rows)) for kind in kinds]
    keys = draw(st.lists(st.sampled_from("abc"), min_size=rows, max_size=rows))
    wanted = draw(st.lists(st.booleans(), min_size=rows, max_size=rows))
    cut = draw(st.integers(0, rows))
    chunks = [
        pa.chunked_array([pa.array(column[:cut], kind), pa.array(column[cut:], kind)])
        for kind, column in zip(kinds, columns, strict=True)
    ]
    return columns, chunks, keys, np.array(wanted)


@given(tables())
def test_captions_are_gathered_at_the_first_row_of_their_image(drawn):
    columns, chunks, keys, wanted = drawn
    owners = first_rows(keys, wanted)
    expected = [
        next(other for other in range(row + 1) if wanted[other] and keys[other] == keys[row]) if wanted[row] else -1
        for row in range(len(keys))
    ]
    assert owners.tolist() == expected
    assert gather_captions(chunks, owners).to_pylist() == gather_by_loops(columns, expected)


@each_row("kind", list(CELLS))
def test_slices_of_a_table_are_read_from_their_place(kind):
    cells = {True: [["a", "b"], ["c", "d"], ["e", "f"]], False: ["a", "b", "c"]}[pa.types.is_nested(kind)]
    column = pa.chunked_array([pa.array(cells, kind)]).slice(1, 2)
    expected = [cell if isinstance(cell, list) else [cell] for cell in cells[1:]]
    assert gather_captions([column], np.arange(2)).to_pylist() == expected


def test_captions_that_look_like_numbers_or_missing_values_are_captions(tmp_path, cache):
    """A CSV file does not say which of its values are text."""
    captions = {
        "words": ["None", "NA", "nan"],
        "more": ["null", "007", "12"],
        "digits": ["1", "20", "3"],
        "both": ["N/A", "7", "a dog"],
    }
    for name, texts in captions.items():
        for metadata in ("metadata.csv", "photos.csv", "metadata.jsonl"):
            folder = tmp_path / f"{name} {metadata}"
            place = folder if metadata.startswith("metadata") else folder / ".photos"
            place.mkdir(parents=True)
            column = "file_name" if place == folder else "image"
            rows = [
                {column: f"{place.relative_to(folder) / str(n)}.png", "caption": text} for n, text in enumerate(texts)
            ]
            for number in range(len(texts)):
                (place / f"{number}.png").write_bytes(picture_bytes(number))
            if metadata.endswith(".csv"):
                lines = [",".join(row.values()) for row in ({column: column, "caption": "caption"}, *rows)]
            else:
                lines = [json.dumps({**row, "caption": int(text) if name == "digits" else text})
                         for row, text in zip(rows, texts, strict=True)]  # fmt: skip
            (folder / metadata).write_text("\n".join(lines) + "\n")
            for keys in ("", ",captions=caption", ",streaming=true"):
                found = load_data(f"images:{folder},image=image{keys}", "train")
                assert found["captions"][:] == [[text] for text in texts], (name, metadata, keys)
