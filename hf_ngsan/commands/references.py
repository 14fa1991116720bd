"""The command `hf-ngsan references`: a file of the captions of a dataset, for `hf-ngsan score`."""

import argparse

from .arguments import DATASETS, add_data_arguments, check_data, check_output_file, user_path

SUMMARY = "Write the captions of a dataset as references for score."
EPILOG = f"""examples:
  hf-ngsan references --data scenes --split test --output references.json
  hf-ngsan evaluate --model runs/scenes --data scenes --split test --output captions.json
  hf-ngsan score --predictions captions.json --references references.json

{DATASETS}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_data_arguments(parser)
    parser.add_argument(
        "--output",
        required=True,
        type=user_path,
        metavar="FILE.json",
        help="file of the references, in the COCO caption format",
    )


def run(options: argparse.Namespace) -> None:
    check_data(options.data)
    check_output_file(options.output, inputs=[options.data])
    from ..data.coco_files import write_caption_file
    from ..tasks.caption_rows import load_rows

    rows = load_rows(options.data, options.split, limit=options.limit)
    number = write_caption_file(options.output, rows["image_id"], rows["captions"])
    print(f"{options.output}: {number} captions of {len(rows)} images.")
