"""The folder of an extraction: shards, and extraction.json with the provenance of the features.

```python
read_extraction("features")["backbone"]  # "microsoft/resnet-50"
```
"""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from datasets import Dataset

from ..io.fields import read_json_or_none
from ..io.files import check_place, write_text_atomically
from ..io.folders import is_empty
from ..io.shards import ShardFolder, ShardRecord
from ..loading.provenance import description_of, provenance_difference
from .errors import ExtractionError

FORMAT = 1
METADATA = "extraction.json"
METADATA_TYPES = {
    "format": object,
    "backbone": str,
    "kind": str,
    "feature_size": int,
    "dtype": str,
    "columns": list,
    "images_per_shard": int,
}

PACKAGES = ("hf-ngsan", "torch", "transformers", "pillow", "numpy", "datasets")
"""Libraries that features depend on."""


def read_extraction(directory: str | os.PathLike) -> dict:
    """Returns the provenance of the features in a folder.

    Returns:
        `backbone` (the name it was loaded by), `kind`, `backbone_type`, `feature_size`, `grid_size`, `num_regions`,
        `checksums` (see [`vision_provenance`]), `dtype`, `columns`, `images_per_shard`, `versions` of the packages,
        `format` and, if the images were changed first, `change`.

    Raises:
        ExtractionError: the folder was not written by an extraction, or its description is damaged.
    """
    file = Path(directory) / METADATA
    if not file.is_file():
        raise ExtractionError(
            f"{directory} has no {METADATA}, so the provenance of its features is unknown; give a folder "
            "written by hf-ngsan extract."
        )
    metadata = read_json_or_none(file)
    try:
        provenance_difference(metadata, metadata)
        has_types = all(isinstance(metadata[name], kind) for name, kind in METADATA_TYPES.items())
        complete = has_types and metadata["images_per_shard"] > 0
    except (LookupError, TypeError, AttributeError):
        complete = False
    if not complete:
        raise ExtractionError(f"{file} is damaged; extract the features again into another folder.")
    if metadata["format"] != FORMAT:
        raise ExtractionError(f"{file} has format {metadata['format']!r}, but this version reads {FORMAT}; update it.")
    return metadata


def check_output_folder(folder: Path) -> None:
    """Checks that a folder is new or has an extraction; writes nothing.

    Raises:
        ExtractionError: the path is a file, or the folder has other files.
        OSError: the folder cannot be written.
    """
    if folder.exists() and not folder.is_dir():
        raise ExtractionError(f"The output folder {folder} is a file; choose another.")
    if not is_empty(folder) and not (folder / METADATA).is_file():
        raise ExtractionError(
            f"The output folder {folder} holds files that are no extraction ({METADATA} is missing); choose another."
        )
    check_place(folder / METADATA)


class FeatureFolder(ShardFolder):
    """The folder of an extraction."""

    metadata_name = METADATA
    error = ExtractionError

    def begin(self, metadata: dict) -> dict:
        """Writes the description of the features, or checks that features of this description may be added.

        A folder without rows gets the new description.

        Returns:
            The metadata of the folder.

        Raises:
            ExtractionError: the folder has features of another backbone or preprocessing, other columns, or changed
                files.
        """
        filled = [record for record in self.records() if record.num_rows]
        if filled:
            recorded = read_extraction(self.path)
            refuse_to_mix(self.path, recorded, metadata)
            self.refuse_changed_shards(filled)
        else:
            self.remove()
            recorded = metadata
            write_text_atomically(self.path / METADATA, json.dumps(metadata, indent=2))
        self.remove_leftovers()
        return recorded

    def rows_by_image_id(self, records: Iterable[ShardRecord]) -> dict[int, dict]:
        """Returns file name, split and captions, if present, of every image with features, by its id."""
        rows: dict[int, dict] = {}
        for record in records:
            if record.num_rows:
                shard = Dataset.from_file(str(self.path / record.file))
                wanted = [name for name in ("image_id", "file_name", "split", "captions") if name in shard.column_names]
                rows |= {row.pop("image_id"): row for row in shard.select_columns(wanted).to_list()}
        return rows

    def publish(self, metadata: Mapping, expected: Iterable[str] = ()) -> tuple[int, list[dict]]:
        """Makes the complete shards one dataset, and lists the images that could not be read ([`make_dataset`]).

        Returns:
            The number of its rows, and the skipped images.
        """
        records = self.records()
        unread = {entry["image_id"]: entry for record in records for entry in record.skipped}
        present = self.rows_by_image_id(records) if unread else {}
        skipped = [entry for image_id, entry in unread.items() if image_id not in present]
        return self.make_dataset(description_of(metadata), skipped, expected), skipped


def refuse_to_mix(folder: Path, recorded: Mapping, current: Mapping) -> None:
    """Raises an ExtractionError if features with the description `current` do not fit into a folder."""
    difference = provenance_difference(recorded, current)
    if difference:
        raise ExtractionError(
            f"{folder} holds features of {recorded['backbone']}, and those of {current['backbone']} would now have "
            f"{difference}; features that are made differently do not mix: choose another output folder."
        )
    if recorded["dtype"] != current["dtype"]:
        raise ExtractionError(f"{folder} holds {recorded['dtype']} features; use --dtype {recorded['dtype']}.")
    facts = [("image changes", recorded.get("change"), current.get("change"))]
    for name in ("captions", "split"):
        facts.append((f"a column {name!r}", name in recorded["columns"], name in current["columns"]))
    for what, has, gets in facts:
        if has != gets:
            raise ExtractionError(
                f"{folder} and the images to be added differ in {what} ({has} there, {gets} here); choose another "
                "output folder."
            )
