"""Inspects data: counts the contents of a file or folder, and finds the first problem."""

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datasets import Dataset, DatasetDict, Image

from .annotations import Annotations, annotation_format
from .coco_files import read_json
from .contract import check_columns, check_row_of_dataset, drop_empty_columns, rows_of
from .errors import DataError
from .formats import open_sources, recognise, some_files
from .formats.rows import ConversionPlan, RowMaker
from .images import VIDEO_SUFFIXES
from .images.files import MEDIA, with_own_media
from .images.loading import load_image_dataset, load_videos
from .images.sources import column_of_splits, holds_images, is_saved, open_saved, open_source, read_folder
from .question_answering import is_answers, is_questions, read_file
from .readers import MIN_ROWS, VALIDATION, find_split
from .saved import refuse_changed_shards
from .vocabulary import words_of

MIN_COUNT = 5
PROBLEM = "first problem"  # beginning of the line with the first problem
SPREADS = {
    "regions": "regions, cells or frames per image",
    "boxes": "boxes per image",
    "widths": "width in pixels",
    "heights": "height in pixels",
    "captions": "captions per image",
    "words": "words per caption",
}
"""Numbers that are reported with minimum, mean and maximum, and their names."""


@dataclass
class Findings:
    """Counts of the contents of data: `spreads` by the names in `SPREADS`, words by split, and notes."""

    kind: str
    unit: str = "images"
    num_images: int = 0
    columns: list[str] = field(default_factory=list)
    feature_sizes: Counter = field(default_factory=Counter)
    spreads: dict[str, Counter] = field(default_factory=lambda: {name: Counter() for name in SPREADS})
    counts: dict[str, Counter] = field(default_factory=dict)
    splits: Counter = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    num_problems: int = 0
    problem: str = ""

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Counts a row of the contract."""
        known = {name: value for name, value in row.items() if value is not None}
        captions = known.get("captions", ())
        captions = [captions] if isinstance(captions, str) else captions
        self.num_images += 1
        if "split" in known:
            self.splits[known["split"]] += 1
        if "visual_features" in known:
            number, size = known["visual_features"].shape
            self.spreads["regions"][number] += 1
            self.feature_sizes[size] += 1
        if "visual_boxes" in known:
            self.spreads["boxes"][len(known["visual_boxes"])] += 1
        if {"width", "height"} <= known.keys():
            self.spreads["widths"][int(known["width"])] += 1
            self.spreads["heights"][int(known["height"])] += 1
        if "captions" in known:
            self.spreads["captions"][len(captions)] += 1
            counts = self.counts.setdefault(known.get("split", ""), Counter())
            for words in map(words_of, captions):
                self.spreads["words"][len(words)] += 1
                counts.update(words)

    def add_problem(self, error: Exception | str) -> None:
        self.problem = self.problem or str(error)
        self.num_problems += 1

    def lines(self) -> list[str]:
        lines = [f"{self.num_images} {'questions' if 'question' in self.columns else self.unit}"]
        if self.columns:
            lines.append(f"columns: {', '.join(self.columns)}")
        if self.splits:
            lines.append(f"splits: {', '.join(f'{name!s:.60} {number}' for name, number in self.splits.items())}")
        if self.feature_sizes:
            lines.append(f"feature dimension: {', '.join(map(str, self.feature_sizes))}")
        lines += [f"{SPREADS[name]}: {spread_of(counts)}" for name, counts in self.spreads.items() if counts]
        if self.spreads["captions"]:
            training_counts = self.counts.get("train")
            counts = sum(self.counts.values(), Counter()) if training_counts is None else training_counts
            where = "captions" if training_counts is None else "training captions"
            number = sum(count >= MIN_COUNT for count in counts.values())
            lines.append(f"vocabulary: {number} words seen {MIN_COUNT} times in {where}")
        lines += [f"note: {note}" for note in self.notes]
        if self.num_problems:
            more_problems = f" ({self.num_problems} in all)" if self.num_problems > 1 else ""
            lines.append(f"{PROBLEM}{more_problems}: {self.problem}")
        else:
            lines.append("no problem found")
        return lines


def spread_of(counts: Counter[int]) -> str:
    if len(counts) == 1:
        return str(*counts)
    mean = sum(number * count for number, count in counts.items()) / counts.total()
    return f"{min(counts)} to {max(counts)}, {mean:.1f} on average"


def inspect_data(path: Path, source_format: str | None = None) -> Findings:
    """Counts the contents of images, a saved dataset, feature files or annotations."""
    if source_format is None and is_saved(path):
        return inspect_saved(path)
    if path.suffix.lower() == ".json" and path.is_file():
        return inspect_annotations(path)
    if source_format is None and not any(some_files(path)) and holds_images(path):
        return inspect_images(path)
    return inspect_features(path, source_format)


def inspect_images(path: Path, read_video: Callable[[str], Any] | None = None) -> Findings:
    """Reads the images and captions of a folder or file; notes skipped files and missing requirements of training.

    `read_video` returns a frame of a file in a folder of videos.
    """
    unit, source = "images" if read_video is None else "videos", str(path)
    findings = Findings(f"folder of {unit}" if path.is_dir() else unit, unit=unit)
    captioned: dict[str, int] = {}  # number of images of the splits that have captions
    with warnings.catch_warnings(record=True) as left_out:
        warnings.simplefilter("always")
        parts = open_source(source, None) if read_video is None else read_folder(path, VIDEO_SUFFIXES)
        load = load_image_dataset if read_video is None else load_videos
        names = dict.fromkeys(column_of_splits(parts, source) or parts)
        splits = {split: load(source, split) for split in names}
    findings.notes += dict.fromkeys(str(warning.message) for warning in left_out)
    for split, rows in splits.items():
        captioned |= {split: len(rows)} if "captions" in rows.column_names else {}
        for place in range(len(rows)):
            try:
                row = rows[place]
                image = row["image"] if read_video is None else read_video(row["video"]["path"])
                findings.add_row({**row, "split": split, "width": image.width, "height": image.height})
            except (ValueError, OSError) as error:
                findings.add_problem(error)
    if not captioned:
        how = "a folder of files needs a metadata.csv with the columns file_name,caption"
        findings.notes.append(f"There are no captions for training and evaluation; {how}.")
    elif "train" not in captioned:
        findings.notes.append(f"Training needs captions in a split 'train'; they are in {', '.join(captioned)}.")
    elif captioned["train"] < MIN_ROWS and find_split(VALIDATION, captioned) is None:
        findings.notes.append(f"Training needs {MIN_ROWS} {unit} with captions, or a split 'validation'.")
    return findings


def inspect_saved(path: Path) -> Findings:
    """Reads a saved dataset; invalid rows and changed files are problems."""
    saved = open_saved(path)
    findings = Findings("saved dataset")
    try:
        refuse_changed_shards(path)
        for split, part in saved.items() if isinstance(saved, DatasetDict) else [(None, saved)]:
            inspect_part(part, split, f"{path}{f', split {split}' if split else ''}", findings)
    except DataError as error:
        findings.add_problem(error)
    return findings


def inspect_part(part: Dataset, split: str | None, name: str, findings: Findings) -> None:
    findings.columns = part.column_names
    has_features = "visual_features" in part.column_names
    if has_features:
        check_columns(part, name)
    part = with_own_media(drop_empty_columns(part), MEDIA)
    for column in [column for column, kind in part.features.items() if isinstance(kind, Image)]:
        part = part.cast_column(column, Image(decode=False))
    for place, row in enumerate(rows_of(part, name)):
        size = next(iter(findings.feature_sizes), None)
        try:
            checked = check_row_of_dataset(row, place, name, size) if has_features else row
            findings.add_row({"split": split, **checked})
        except DataError as error:
            findings.add_problem(error)


def inspect_annotations(path: Path) -> Findings:
    document = read_json(path)
    skipped: list[dict] = []
    if is_questions(document) or is_answers(document):
        findings = Findings("questions or answers of VQA v2", columns=["question"])
        findings.num_images = len(read_file(path, skipped)[1])
    else:
        findings = Findings(f"annotations in the format {annotation_format(document, path).name}")
        for image in Annotations([path], skipped).images:
            findings.add_row({"captions": image.captions, "split": image.split})
    for entry in skipped:
        findings.add_problem(entry["reason"])
    return findings


def inspect_features(path: Path, source_format: str | None) -> Findings:
    """Reads feature files like a conversion; broken records are problems."""
    name = source_format or recognise(path).name
    findings = Findings(f"features in the format {name}")
    sources = open_sources(path, name)
    maker = RowMaker(sources, ConversionPlan("", [], "float32"), Annotations([], None))
    for number, source in enumerate(sources):
        for entry in source.entries():
            try:
                findings.add_row({**maker.make_row(number, entry, *entry.read()), "captions": None})
            except DataError as error:
                findings.add_problem(error)
        source.close()
    return findings
