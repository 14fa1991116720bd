"""The command `hf-ngsan attach-vision`: from a captioner of features to one of photographs."""

import argparse

from .arguments import add_model_argument, add_vision_arguments, check_new_folder, vision_fields

SUMMARY = "Give a captioner that was trained on features the vision encoder that made them, so that it captions images."
EPILOG = """examples:
  hf-ngsan extract --images photos.json --split train --backbone microsoft/resnet-50 --grid-size 7 7 --output features
  hf-ngsan train --config ngsan/ngsan data.spec=features:features training.output_dir=runs/photos
  hf-ngsan attach-vision --model runs/photos --backbone microsoft/resnet-50 --grid-size 7 7 --output captioner
  hf-ngsan caption --model captioner photo.jpg

Backbone and settings must be those of the extraction: a captioner that knows the checksums of its features takes no
others. Where they are not known, only the feature dimension is compared."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_vision_arguments(parser)
    parser.add_argument("--output", required=True, metavar="DIR", help="new folder of the captioner with both")


def run(options: argparse.Namespace) -> None:
    from pathlib import Path

    from ..files import write_folder_atomically
    from ..loading import save_model
    from ..tasks.attached_vision import attach_vision

    check_new_folder(options.output)
    model, processor = attach_vision(options.model, options.backbone, **vision_fields(options))
    write_folder_atomically(Path(options.output), lambda folder: save_model(model, processor, folder), manifest=False)
    print(f"{options.output} captions images: hf-ngsan caption --model {options.output} IMAGE")
