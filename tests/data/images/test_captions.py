import json

from hf_ngsan.data import load_data
from tests.data.images.photos import picture_bytes


def test_captions_that_look_like_numbers_or_missing_values_are_captions(tmp_path, cache):
    """A CSV file does not say which of its values are text."""
    captions = {"words": ["None", "NA", "nan"], "digits": ["1", "20", "3"], "both": ["N/A", "7", "a dog"]}
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
