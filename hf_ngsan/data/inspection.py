"""Inspection of data: counts of the contents of a file or folder, and its first problem.

print(*inspect_data(Path("features")).lines(), sep="\n")
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, Image

from .contract import check_columns, check_row_of_dataset, drop_empty_columns, refuse_long_caption, rows_of
from .errors import DataError, as_data_error
from .formats.annotation_files import annotation_format, read_document
from .formats.annotations import Annotations
from .formats.record import Entry
from .formats.registry import open_sources, recognise
from .formats.rows import ConversionPlan, ImageIds, RowMaker
from .formats.vqa_v2 import Questions, is_answers, is_questions
from .images.decoding import with_raster_images
from .images.sources import is_saved
from .saved import open_saved, refuse_changed_shards
from .vocabulary import words_of

MIN_COUNT = 5
SPLITS_SHOWN = 20


@dataclass
class Spread:
    """Smallest, mean and largest of some numbers."""

    number: int = 0
    total: int = 0
    smallest: int = 0
    largest: int = 0

    def add(self, value: int) -> None:
        self.smallest = min(self.smallest, value) if self.number else value
        self.largest = max(self.largest, value)
        self.number, self.total = self.number + 1, self.total + value

    def __str__(self) -> str:
        if self.smallest == self.largest:
            return str(self.smallest)
        return f"{self.smallest} to {self.largest}, {self.total / self.number:.1f} on average"


@dataclass
class Findings:
    """Counts of the contents of data.

    Attributes:
        kind: kind of the data.
        sample_id: id of the image to keep in `sample`; the first one with boxes if None.
        num_images: rows, or images of annotations.
        sample: a row with `image_id` and, if present, `image`, `visual_boxes`, `captions`, `width`, `height`.
        notes: sentences about the data that may surprise.
        uses: commands that take the data, each with what the data lack for it; "" if they are usable.
        num_problems, problem: number of wrong records, and the first problem.
    """

    kind: str
    sample_id: int | None = None
    num_images: int = 0
    columns: list[str] = field(default_factory=list)
    feature_sizes: Counter = field(default_factory=Counter)
    regions: Spread = field(default_factory=Spread)
    boxes: Spread = field(default_factory=Spread)
    captions: Spread = field(default_factory=Spread)
    words: Spread = field(default_factory=Spread)
    widths: Spread = field(default_factory=Spread)
    heights: Spread = field(default_factory=Spread)
    counts: dict[str, Counter] = field(default_factory=dict)
    splits: Counter = field(default_factory=Counter)
    sample: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)
    uses: dict[str, str] = field(default_factory=dict)
    num_problems: int = 0
    problem: str = ""

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Counts a row of the contract; raises a DataError if its captions cannot be counted."""
        words = words_of_captions(row)
        self.num_images += 1
        split = row.get("split")
        if split is not None:
            self.splits[split] += 1
        if row.get("visual_features") is not None:
            features = row["visual_features"]
            self.feature_sizes[features.shape[1]] += 1
            self.regions.add(len(features))
        if row.get("visual_boxes") is not None:
            self.boxes.add(len(row["visual_boxes"]))
        if row.get("width") is not None and row.get("height") is not None:
            self.widths.add(int(row["width"]))
            self.heights.add(int(row["height"]))
        if words is not None:
            self.captions.add(len(words))
            counts = self.counts.setdefault(split or "", Counter())
            for of_caption in words:
                self.words.add(len(of_caption))
                counts.update(of_caption)
        if self.sample_id is None:
            is_sample = row.get("visual_boxes") is not None or row.get("image") is not None
        else:
            is_sample = row.get("image_id") == self.sample_id
        if self.sample is None and is_sample:
            names = ("image_id", "image", "visual_boxes", "captions", "width", "height")
            self.sample = {name: row[name] for name in names if row.get(name) is not None}

    def add_problem(self, error: Exception | str) -> None:
        """Counts a wrong record."""
        self.problem = self.problem or str(error)
        self.num_problems += 1

    def vocabulary(self) -> tuple[int, str]:
        """Returns the number of words that are seen `MIN_COUNT` times, and in which captions: of training, or all."""
        if "train" in self.counts:
            counts, where = self.counts["train"], "training captions"
        else:
            counts, where = sum(self.counts.values(), Counter()), "captions"
        return sum(count >= MIN_COUNT for count in counts.values()), where

    def lines(self) -> list[str]:
        """Returns the findings as lines of text."""
        lines = [f"{self.num_images} images" if "question" not in self.columns else f"{self.num_images} questions"]
        if self.columns:
            lines.append(f"columns: {', '.join(self.columns)}")
        if self.splits:
            shown = [f"{name!s:.60} {number}" for name, number in islice(self.splits.items(), SPLITS_SHOWN)]
            if len(self.splits) > SPLITS_SHOWN:
                shown.append(f"{len(self.splits) - SPLITS_SHOWN} more")
            lines.append(f"splits: {', '.join(shown)}")
        if self.feature_sizes:
            lines.append(f"feature dimension: {', '.join(map(str, self.feature_sizes))}")
            lines.append(f"regions, cells or frames an image: {self.regions}")
        if self.boxes.number:
            lines.append(f"boxes an image: {self.boxes}")
        if self.widths.number:
            lines += [f"width in pixels: {self.widths}", f"height in pixels: {self.heights}"]
        if self.captions.number:
            number, where = self.vocabulary()
            lines += [f"captions an image: {self.captions}", f"words a caption: {self.words}"]
            lines.append(f"vocabulary: {number} words seen {MIN_COUNT} times in {where}")
        lines += [f"note: {note}" for note in self.notes]
        for lack in dict.fromkeys(self.uses.values()):
            commands = ", ".join(command for command, of_command in self.uses.items() if of_command == lack)
            lines += (f"{commands}: {lack or 'usable'}").split("\n")
        if self.num_problems:
            more = f" ({self.num_problems} in all)" if self.num_problems > 1 else ""
            lines.append(f"first problem{more}: {self.problem}")
        elif not self.uses.get("evaluate"):  # a folder that is only too small to train on has no problem
            lines.append("no problem found")
        return lines


def words_of_captions(row: Mapping[str, Any]) -> list[list[str]] | None:
    """Returns the words of each caption of a row; raises a DataError if they are no texts, or too long."""
    captions, where = row.get("captions"), f"image {row.get('image_id', '')}"
    if captions is None:
        return None
    if isinstance(captions, str) or not all(isinstance(caption, str) for caption in captions):
        raise DataError(f"{where}: captions is {captions!r:.60}; it must be a list of strings.")
    for caption in captions:
        refuse_long_caption(len(caption), f"{where}: a caption")
    return [words_of(caption) for caption in captions]


def inspect_data(path: Path, source_format: str | None = None, sample_id: int | None = None) -> Findings:
    """Reads all of a saved dataset, of feature files or of an annotation file, and counts the contents.

    Args:
        path: a file or folder.
        source_format: format of features; recognised if None.
        sample_id: id of the image to keep as the sample.

    Raises:
        DataError: the path is none of these, or cannot be opened.
    """
    if source_format is None and is_saved(path):
        return inspect_saved(path, sample_id)
    if path.suffix.lower() == ".json" and path.is_file():
        with as_data_error():
            return inspect_annotations(path)
    return inspect_features(path, source_format, sample_id)


def inspect_saved(path: Path, sample_id: int | None) -> Findings:
    """Reads a saved dataset; rows that break the contract, and files that have changed, are problems."""
    saved = open_saved(path)
    parts = dict(saved) if isinstance(saved, DatasetDict) else {None: saved}
    findings = Findings("saved dataset", sample_id)
    try:
        refuse_changed_shards(path)
    except DataError as error:
        findings.add_problem(error)
    for split, part in parts.items():
        findings.columns = part.column_names
        name = f"{path}{f', split {split}' if split else ''}"
        has_features = "visual_features" in part.column_names
        if has_features:
            try:
                check_columns(part, name)
            except DataError as error:
                findings.add_problem(error)
                findings.num_images += len(part)
                continue
        for place, row in enumerate(rows_of(undecoded(drop_empty_columns(part)), name)):
            size = next(iter(findings.feature_sizes), None)
            try:
                checked = check_row_of_dataset(row, place, name, size) if has_features else row
                findings.add_row({"split": split, **checked})
            except DataError as error:
                findings.add_problem(error)
    return findings


def undecoded(rows: Dataset) -> Dataset:
    """Returns rows with images as they are stored, not decoded."""
    for name, kind in rows.features.items():
        if isinstance(kind, Image):
            rows = rows.cast_column(name, Image(decode=False))
    return rows


def inspect_annotations(path: Path) -> Findings:
    """Reads an annotation file; broken records are problems."""
    document = read_document(path)
    skipped: list[dict] = []
    if is_questions(document) or is_answers(document):
        findings = Findings("questions or answers of VQA v2", columns=["question"])
        findings.num_images = len(Questions([path], skipped, alone=True).rows)
    else:
        findings = Findings(f"annotations in the format {annotation_format(document, path).name}")
        for image in Annotations([path], skipped).images:
            try:
                name = image.name or next(iter(image.ids.values()), "")
                findings.add_row({"image_id": name, "captions": image.captions, "split": image.split})
            except DataError as error:
                findings.add_problem(f"{path}, {error}")
    for entry in skipped:
        findings.add_problem(entry["reason"])
    return findings


def inspect_features(path: Path, source_format: str | None, sample_id: int | None) -> Findings:
    """Reads feature files as a conversion would; broken records are problems."""
    if not path.exists():
        raise DataError(f"{path} does not exist.")
    name = source_format or recognise(path).name
    findings = Findings(f"features in the format {name}", sample_id)
    ids = ImageIds(open_sources(path, name))
    has_captions = any(source.has_captions() for source in ids.sources)
    has_split = any(source.has_split() for source in ids.sources)
    plan = ConversionPlan("", [], "float32", has_captions=has_captions, has_split=has_split)
    maker = RowMaker(plan, Annotations([], None))
    for number, source in enumerate(ids.sources):
        for entry in source.entries():
            try:
                findings.add_row(row_of(number, entry, maker, ids))
            except DataError as error:
                findings.add_problem(error)
        source.close()
    return findings


def row_of(number: int, entry: Entry, maker: RowMaker, ids: ImageIds) -> dict[str, Any]:
    name, record = entry.read()
    image_id = ids.of(number, entry, name, entry.where)
    row = maker.make_row(image_id, name, ids.sources[number].is_numbered, record, entry.where)
    ids.seen.add(image_id)
    return {name: value for name, value in row.items() if maker.plan.has_captions or name != "captions"}


def sample_image(row: dict[str, Any]) -> Any:
    """Returns the image of a sample row, decoded, or None."""
    if "image" not in row:
        return None
    return with_raster_images(Dataset.from_dict({"image": [row["image"]]}).cast_column("image", Image()))[0]["image"]
