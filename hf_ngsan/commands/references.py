"""The command `hf-ngsan references`: writes the captions of a dataset into a file for `hf-ngsan score`."""

import argparse

from .arguments import DATA, add_shared, check_outputs

SUMMARY = "Write the captions of a dataset to a reference file for score."
EPILOG = """examples:
  hf-ngsan references --data scenes --split test --output references.json
  hf-ngsan score --predictions captions.json --references references.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, *DATA)
    add_shared(parser, "--output", required=True, metavar="FILE.json", help="output file in the COCO caption format")


def run(options: argparse.Namespace) -> None:
    check_outputs({"--output": options.output}, [options.data])
    from ..data.coco_files import write_caption_file
    from ..tasks.caption_rows import load_rows

    rows = load_rows(options.data, options.split, limit=options.limit)
    number = write_caption_file(options.output, rows["image_id"], rows["captions"])
    print(f"{options.output}: {number} captions of {len(rows)} images.")
