"""The command `hf-ngsan extract`: features of images into a folder that training and evaluation read."""

import argparse

EPILOG = """examples:
  hf-ngsan extract --images photos --backbone microsoft/resnet-50 --grid-size 7 7 --output features
  hf-ngsan extract --images coco/captions_val2017.json --image-folder coco/val2017 --split validation \\
      --backbone PekingU/rtdetr_r50vd --num-regions 36 --output features
  hf-ngsan evaluate --model runs/coco --data features:features --split validation

The same command goes on with what a killed run has begun, and adds images to a folder that has others already, such as
those of another split. Images that cannot be read are skipped and listed in skipped.json."""
LISTED_AT_MOST = 20
VISION_FIELDS = ("grid_size", "num_regions", "score_threshold", "suppression_threshold")


def add_extract_arguments(parser: argparse.ArgumentParser):
    """Adds the arguments of `hf-ngsan extract` to an `argparse` parser."""
    parser.add_argument(
        "--images",
        required=True,
        metavar="DIR_OR_JSON",
        help="folder of images, or COCO file (captions_*.json, instances_*.json) that lists them",
    )
    parser.add_argument(
        "--backbone",
        required=True,
        metavar="ID_OR_DIR",
        help="backbone, detection model, vision part, or captioner with one: a folder or a name on the Hub",
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="folder of the features")
    parser.add_argument(
        "--image-folder", metavar="DIR", help="where the images of a COCO file are (its folder, or images/ there)"
    )
    parser.add_argument("--split", metavar="NAME", help="what the column 'split' says: train, validation, test, ...")
    parser.add_argument(
        "--grid-size",
        nargs=2,
        type=positive_int,
        metavar=("ROWS", "COLUMNS"),
        help="pool a backbone's feature map to this (left as it is)",
    )
    parser.add_argument("--num-regions", type=positive_int, metavar="K", help="regions of an image at most (36)")
    parser.add_argument("--score-threshold", type=share, metavar="S", help="leave out regions with a lower score (0)")
    parser.add_argument(
        "--suppression-threshold",
        type=share,
        metavar="IOU",
        help="leave out regions that overlap a better one of their class by more (1, none)",
    )
    parser.add_argument("--dtype", choices=("float16", "float32"), default="float16", help="of features (%(default)s)")
    parser.add_argument("--batch-size", type=positive_int, default=16, metavar="N", help="images at once (%(default)s)")
    parser.add_argument(
        "--num-workers", type=whole_number, metavar="N", help="processes that read images (one a processor, at most 4)"
    )
    parser.add_argument(
        "--images-per-shard",
        type=positive_int,
        metavar="N",
        help="what a kill can cost (chosen by the number of images)",
    )
    parser.add_argument("--strict", action="store_true", help="stop at an image that cannot be read")


def positive_int(text: str) -> int:
    number = whole_number(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above 0")
    return number


def whole_number(text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 0 to 1")
    return value


def check_extract(options):
    """Checks the options of `hf-ngsan extract` without loading weights or writing anything.

    Raises:
        FileNotFoundError, ValueError: bad input, with one sentence that says what is wrong.
    """
    from .vision import check_backbone

    find_images(options)
    check_backbone(options.backbone, **vision_fields(options))


def run_extract(options) -> int:
    """Runs `hf-ngsan extract`.

    Returns:
        The exit code, 0, also where images were skipped.

    Raises:
        FileNotFoundError, ValueError: bad input, with one sentence that says what is wrong.
    """
    from .extract import extract_features
    from .together import extraction_accelerator, on_every_process, on_main_process
    from .vision import load_vision

    accelerator = extraction_accelerator()
    images = on_main_process(accelerator, lambda: find_images(options))
    model, image_processor = on_every_process(
        accelerator, lambda: load_vision(options.backbone, **vision_fields(options))
    )
    result = extract_features(
        model,
        image_processor,
        images,
        options.output,
        name=options.backbone,
        split=options.split,
        batch_size=options.batch_size,
        num_workers=options.num_workers,
        dtype=options.dtype,
        images_per_shard=options.images_per_shard,
        strict=options.strict,
        accelerator=accelerator,
    )
    if accelerator.is_main_process:
        print_summary(result, images, options)
    accelerator.end_training()
    return 0


def find_images(options):
    from pathlib import Path

    from .feature_folder import check_output_folder
    from .image_list import list_images

    check_output_folder(Path(options.output))
    return list_images(options.images, options.image_folder)


def vision_fields(options) -> dict:
    return {name: getattr(options, name) for name in VISION_FIELDS}


def print_summary(result, images, options):
    """Says what has become of the images; the folder may hold others too, of another split for example."""
    for note in images.notes:
        print(f"Note: {note}")
    listed = {image.image_id for image in images.images}
    skipped = [entry for entry in result.skipped if entry["image_id"] in listed]
    for entry in skipped[:LISTED_AT_MOST]:
        print(f"skipped: {entry['reason']}")
    if len(skipped) > LISTED_AT_MOST:
        print(f"skipped: {len(skipped) - LISTED_AT_MOST} more; all are in {options.output}/skipped.json.")
    number = len(images) - len(skipped)
    pace = f" ({result.num_new} new, {result.num_new / result.seconds:.1f} images/s)" if result.num_new else ""
    total = f" The folder has {result.num_rows} in all." if result.num_rows > number else ""
    print(f"{options.output}: features of {number} images{pace}, {len(skipped)} skipped.{total}")
    if options.split is None:
        print("They have no split, which training and evaluation need (--split); datasets.load_from_disk reads them.")
    elif images.has_captions:
        print(f"Read them as features:{options.output}, split {options.split}.")
    else:
        print(
            f"hf-ngsan caption reads them as features:{options.output}, split {options.split}; training and evaluation "
            "need captions, which a COCO caption file has (--images captions_NAME.json)."
        )
