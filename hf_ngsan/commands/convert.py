"""The command `hf-ngsan convert`: a dataset from feature files, images or annotations of third parties."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from ..data.annotations import FORMATS as ANNOTATION_FORMATS
from ..data.formats import CONVENTIONS, FORMATS
from .arguments import MAX_GRID, at_most, positive_int, print_skipped, user_path

if TYPE_CHECKING:
    from ..data.conversion import ConversionResult

SUMMARY = """Convert files of features, images or captions into a dataset.

Training reads the folder as features:DIR or images:DIR."""
EPILOG = """examples:
  hf-ngsan convert trainval_36.tsv --output features
  hf-ngsan convert cocobu dataset_coco.json --output features --skip-errors
  hf-ngsan convert val2014 captions_val2014.json --split validation --output features
  hf-ngsan convert train2014 val2014 --from grid-pth --grid-size 7 7 --output grids

formats:
{}

annotations, converted alone or joined with features: captions, splits and sizes by image id:
{}
  vqa-v2         questions and annotations of VQA v2, converted alone

The same command continues a conversion that was killed.""".format(
    "\n".join(f"  {one.name:14} {one.summary}" for one in FORMATS.values()),
    "\n".join(f"  {one.name:14} {one.summary}" for one in ANNOTATION_FORMATS.values()),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "inputs",
        nargs="+",
        type=user_path,
        metavar="INPUT",
        help="file or folder of features or images, or annotation file",
    )
    parser.add_argument("--output", required=True, type=user_path, metavar="DIR", help="new folder")
    parser.add_argument(
        "--from", dest="source_format", choices=list(FORMATS), help="format of the inputs, listed below (recognised)"
    )
    parser.add_argument(
        "--dtype", choices=("float16", "float32"), default="float16", help="type of the stored features (%(default)s)"
    )
    parser.add_argument(
        "--boxes", choices=CONVENTIONS, help="convention of the boxes in the inputs (xyxy, in pixels or normalized)"
    )
    parser.add_argument(
        "--grid-size",
        nargs=2,
        type=at_most(MAX_GRID),
        metavar=("ROWS", "COLUMNS"),
        help="pool grids to this size (not pooled)",
    )
    parser.add_argument(
        "--split", metavar="NAME", help="value of the column 'split' if the annotations have none: train, test, ..."
    )
    parser.add_argument(
        "--images-per-shard", type=positive_int, default=256, metavar="N", help="images per shard (%(default)s)"
    )
    parser.add_argument(
        "--skip-errors",
        action="store_true",
        help="leave out and list unusable records, instead of stopping at the first",
    )


def run(options: argparse.Namespace) -> None:
    from ..data.conversion import convert_annotations, convert_features, is_annotation

    if all(is_annotation(Path(one)) for one in options.inputs):
        table = convert_annotations(
            options.inputs, options.output, split=options.split, skip_errors=options.skip_errors
        )
        print_skipped([entry["reason"] for entry in table.skipped], options.output)
        columns = ", ".join(table.columns)
        print(f"{options.output}: {table.num_rows} rows with {columns}, {len(table.skipped)} skipped.")
        return
    result = convert_features(
        options.inputs,
        options.output,
        source_format=options.source_format,
        dtype=options.dtype,
        boxes=options.boxes,
        grid_size=options.grid_size and tuple(options.grid_size),
        split=options.split,
        images_per_shard=options.images_per_shard,
        skip_errors=options.skip_errors,
    )
    print_summary(result, options.output)


def print_summary(result: "ConversionResult", output: str) -> None:
    for note in result.notes:
        print(f"Note: {note}")
    print_skipped([entry["reason"] for entry in result.skipped], output)
    fewest, most = result.num_regions
    regions = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    new = f" ({result.num_new} in this run)" if result.num_new < result.num_rows else ""
    features = f" with features of dimension {result.feature_size}, {regions} each" if result.feature_size else ""
    print(f"{output}: {result.num_rows} images{new}{features}, {len(result.skipped)} skipped.")
