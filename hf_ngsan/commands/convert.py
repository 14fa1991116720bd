"""The command `hf-ngsan convert`: converts feature files, images or annotations of third parties into a dataset."""

import argparse
from pathlib import Path

from ..data.annotations import ANNOTATION_FORMATS
from ..data.formats import BOX_ORDERS, FEATURE_FORMATS
from .arguments import add_shared, pick, print_skipped, user_path

SUMMARY = """Convert files of features or captions into a dataset.

Training and evaluation read the new folder as features:DIR."""
EPILOG = """examples:
  hf-ngsan convert trainval_36.tsv --output features
  hf-ngsan convert cocobu dataset_coco.json --output features --skip-errors
  hf-ngsan convert val2014 captions_val2014.json --split validation --output features
  hf-ngsan convert train2014 val2014 --from grid-pth --grid-size 7 7 --output grids

formats:
{}

annotations with captions, splits and image sizes, converted alone or joined with features by image id:
{}
  vqa-v2         questions and annotations of VQA v2, converted alone

To resume a conversion that was killed, run the same command again.""".format(
    "\n".join(f"  {entry.name:14} {entry.summary}" for entry in FEATURE_FORMATS.values()),
    "\n".join(f"  {entry.name:14} {entry.summary}" for entry in ANNOTATION_FORMATS.values()),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("inputs", nargs="+", type=user_path, metavar="INPUT", help="files or folders of features and annotations")
    add_shared(parser, "--output", required=True, metavar="DIR", help="new folder for the dataset")
    listed = "format of the inputs, see below (default: detected)"
    add("--from", dest="source_format", choices=list(FEATURE_FORMATS), help=listed)
    add_shared(parser, "--dtype", "--grid-size", "--skip-errors")
    boxes = "box coordinates: corners, upper left corner and size, or centre and size"
    add("--boxes", choices=BOX_ORDERS, default="xyxy", help=boxes)
    add("--split", metavar="NAME", help="split of the images if the annotations have none: train, validation or test")
    add_shared(parser, "--images-per-shard", default=256, help="images per output file")


def run(options: argparse.Namespace) -> None:
    from ..data.conversion import convert_annotations, convert_features, is_annotation

    if all(is_annotation(Path(path)) for path in options.inputs):
        table = convert_annotations(options.inputs, options.output, **pick(options, "split", "skip_errors"))
        print_skipped([entry["reason"] for entry in table.skipped], options.output)
        columns = ", ".join(table.columns)
        print(f"{options.output}: {table.num_rows} rows with {columns}, {len(table.skipped)} skipped.")
        return
    result = convert_features(
        options.inputs,
        options.output,
        grid_size=options.grid_size and tuple(options.grid_size),
        **pick(options, "source_format", "dtype", "boxes", "split", "images_per_shard", "skip_errors"),
    )
    for note in result.notes:
        print(f"Note: {note}")
    print_skipped([entry["reason"] for entry in result.skipped], options.output)
    fewest, most = result.num_regions
    regions = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    new = f" ({result.num_new} in this run)" if result.num_new < result.num_rows else ""
    features = f"features of dimension {result.feature_size}, {regions} each"
    print(f"{options.output}: {result.num_rows} images{new} with {features}, {len(result.skipped)} skipped.")
