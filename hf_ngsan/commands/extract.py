"""The command `hf-ngsan extract`: extracts visual features of images into a dataset."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from ..io.packaged import find_model_folder, is_model
from . import arguments
from .arguments import add_shared, at_most, between, fraction, whole_number

SUMMARY = """Extract visual features of images or videos into a dataset.

Training and evaluation read the new folder as features:DIR."""
EPILOG = """examples:
  hf-ngsan extract --images photos --backbone microsoft/resnet-50 --grid-size 7 7 --output features
  hf-ngsan extract --images coco/captions_val2017.json --image-folder coco/val2017 --split validation \\
      --backbone PekingU/rtdetr_r50vd --num-regions 36 --output features
  hf-ngsan extract --images images:flickr8k --split train --backbone efficientnet-lite0 --copies 4 --output features
  hf-ngsan extract --images photos --boxes boxes.json --backbone efficientnet-lite0 --output features
  hf-ngsan extract --images videos:clips --split train --backbone efficientnet-lite0 --num-frames 16 --output features
  hf-ngsan evaluate --model runs/coco --data features:features --split validation

To resume an extraction that was killed, run the same command again. The same command with other images, such as another
split, adds them to the folder. An image that cannot be read is an error; with --skip-errors, such images are left out
and listed in skipped.json."""
CHANGES = ("smallest_crop", "flip", "color_jitter")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--images", "--image-folder", "--boxes", *arguments.VISION_OPTIONS)
    add_shared(parser, "--output", required=True, metavar="DIR", help="folder of the features")
    add_shared(parser, "--split", default=None, metavar="NAME", help="split to read; for a folder, split to record")
    add_shared(parser, "--batch-size", default=16)
    add_shared(parser, "--dtype", "--engine", *arguments.READING, "--num-processes")
    what = (
        "Features of randomly changed images, for training with augmentation.feature_copies=true. Images with the\n"
        "word left or right in a caption are not mirrored."
    )
    copies = parser.add_argument_group("options for augmented copies", what)
    add = copies.add_argument
    add("--copies", type=at_most(100), metavar="N", help="also extract features of N changed copies of each image")
    add("--smallest-crop", type=between(1e-6, 1), default=0.6, metavar="S", help="smallest crop as a share of the area")
    add("--flip", type=fraction, default=0.5, metavar="SHARE", help="probability of mirroring a copy")
    add("--color-jitter", type=fraction, default=0.2, metavar="S", help="largest change of brightness and colours")
    add("--seed", type=whole_number, default=0, metavar="N", help="random seed of the changes")


def check(options: argparse.Namespace) -> None:
    from ..extraction import check_backbone

    arguments.check_files(options.boxes)
    if options.boxes is not None and options.copies is not None:
        raise ValueError("--copies changes images but not the boxes of --boxes; leave out one of the two.")
    check_backbone(options.backbone, **vision_fields(options, images_to_extract(options)))


def run(options: argparse.Namespace) -> None:
    from ..extraction.extract import extract_features
    from ..io.processes import OneProcess, extraction_accelerator

    images = images_to_extract(options)
    accelerator: Any = OneProcess()
    model = vision_graph(options, images)
    if model is not None:
        image_processor = model.image_processor
    else:
        from ..extraction.vision import load_vision
        from ..loading.engines import use_engine

        accelerator = extraction_accelerator()
        model, image_processor = load_vision(options.backbone, **vision_fields(options, images))
        use_engine(model.to(accelerator.device), image_processor, options.engine)
    if options.boxes is not None:
        images = images.with_boxes(options.boxes, model.config, options.skip_errors)
    extract = partial(
        extract_features,
        model,
        image_processor,
        images,
        name=options.backbone,
        accelerator=accelerator,
        **arguments.pick(options, "split", "dtype", "batch_size", "num_workers", "images_per_shard", "skip_errors"),
    )
    result = extract(output=options.output)
    for number in range(1, (options.copies or 0) + 1):
        from ..data.saved import copy_folder
        from ..tasks.caption_rows import AugmentationSettings, change_of_copy

        change = change_of_copy(AugmentationSettings(**arguments.pick(options, *CHANGES)), options.seed, number)
        extract(output=copy_folder(options.output, number), change=change)
    if accelerator.is_main_process:
        for note in images.notes:
            print(f"Note: {note}")
        listed = {image.image_id for image in images.images}  # the folder may have other images, of another split
        skipped = [entry["reason"] for entry in result.skipped if entry["image_id"] in listed]
        arguments.print_skipped(skipped, options.output)
        number = len(images) - len(skipped)
        pace = f" ({result.num_new} new, {result.num_new / result.seconds:.1f} images/s)" if result.num_new else ""
        total = f" The folder has {result.num_rows} images in total." if result.num_rows > number else ""
        print(f"{options.output}: features of {number} images{pace}, {len(skipped)} skipped.{total}")
        if options.split is None:
            print("They have no split; training and evaluation need one (--split).")
        else:
            captions = "" if images.has_captions else "; they have no captions, and training and evaluation need them"
            print(f"Read them as features:{options.output}, split {options.split}{captions}.")
    accelerator.end_training()


def vision_graph(options: argparse.Namespace, images: Any) -> Any:
    """Returns the graph of a captioner's vision encoder; None if it cannot do what is asked."""
    asked = [options.boxes, options.copies, *arguments.pick(options, *arguments.VISION).values()]
    is_usual = all(value is None for value in asked) and not images.are_clips and is_model(options.backbone)
    if not (is_usual and arguments.may_use_graphs(options, len(images))):
        return None
    from ..exporting.onnx_folder import CAPTIONER_GRAPHS, VisionGraph, open_beside

    return open_beside(find_model_folder(options.backbone), CAPTIONER_GRAPHS[:1], VisionGraph)


def vision_fields(options: argparse.Namespace, images: Any) -> dict[str, Any]:
    kind = "frames" if images.are_clips else None if options.boxes is None else "boxes"
    return arguments.pick(options, *arguments.VISION) | {"kind": kind}


def images_to_extract(options: argparse.Namespace) -> Any:
    from ..extraction import list_images
    from ..extraction.extract import check_extraction_folder

    check_extraction_folder(Path(options.output))
    return list_images(options.images, options.image_folder, options.split)
