"""The command `hf-ngsan explain`: attention heads of an image-text match, or the effect of geometry on a captioner."""

import argparse
import json
from typing import Any

from . import arguments
from .arguments import add_shared, pick, user_path, whole_number

SUMMARY = """Explain an image-text match, or how a caption depends on boxes.

For a match, the command shows the share of each attention head. For a caption, it shows the effect of changed boxes.
For a photograph, it shows the geometric bias in the attention of one region to the others."""
EPILOG = """examples:
  hf-ngsan explain --model DUAL_ENCODER photo.jpg "a dog jumps over a log" --figure heads.png
  hf-ngsan explain --model runs/scenes --data scenes --counterfactual swap --region 0 --other 1 --figure swap.png
  hf-ngsan explain --model runs/scenes --data scenes --counterfactual score
  hf-ngsan explain --model runs/regions photo.jpg --boxes boxes.json --region 0 --figure bias.png

For a dual encoder, the first line has the cosine similarity of image and text. Each other line has a head, its share of
the similarity and, for a text head, the word with the largest weight; the bias of a projection counts as a head. For
models of transformers, a share is a first-order estimate of how much similarity a head of the last layers adds.

For a captioner, --counterfactual changes the box of one region; the output is JSON with the captions before and after.
"score" swaps two boxes in many rows of scenes or relations:DIR; its result "follow" is the share of captions that state
the new relation. Without --counterfactual, --figure draws the geometric bias of a region or grid cell of IMAGE, by
layer and head; the names of the regions come from the file of --boxes."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model")
    parser.add_argument("image", nargs="?", type=user_path, metavar="IMAGE", help="image file or URL")
    parser.add_argument("text", nargs="?", metavar="TEXT", help="text to compare the image with")
    parser.add_argument("--figure", type=user_path, metavar="FILE", help="write a figure to this file")
    add_shared(parser, "--output", help="write the JSON to this file (default: print it)")
    group = parser.add_argument_group("options for captioners")
    changes = "change of the box: move right by a fifth of the image, double the size, mirror, or swap with --other"
    group.add_argument("--counterfactual", choices=("move", "scale", "mirror", "swap", "score"), help=changes)
    add_shared(group, "--data", required=False)
    add_shared(group, "--split", "--limit")
    group.add_argument("--row", type=whole_number, default=0, metavar="N", help="row of the split, counted from 0")
    group.add_argument("--region", type=whole_number, default=0, metavar="N", help="region, counted from 0")
    add_shared(group, "--boxes")
    group.add_argument("--other", type=whole_number, default=1, metavar="N", help="second region of a swap")


def run(options: argparse.Namespace) -> None:
    if options.counterfactual is not None:
        if options.image is not None or options.data is None:
            raise ValueError("--counterfactual needs a dataset (--data) instead of IMAGE.")
        write_counterfactual(options)
    elif options.image is not None and options.figure is not None and options.text is None and options.data is None:
        draw_geometric_bias(options)
    elif options.image is None or options.text is None or options.data is not None or options.output is not None:
        two = "--counterfactual and --data, or an image and --figure, for a captioner"
        raise ValueError(f"Give an image and a text for a dual encoder, or {two}.")
    else:
        explain_heads(options)


def explain_heads(options: argparse.Namespace) -> None:
    """Prints the similarity of an image and a text and the share of each head; draws the heads."""
    arguments.check_files(options.image)
    arguments.check_outputs({"--figure": options.figure}, [options.image])
    from ..tasks.retrieval_search import explain_pair

    match = explain_pair(
        *arguments.load_on_device(options.model, "retrieval"), **pick(options, "image", "text", "figure")
    )
    print(f"similarity\t{match.similarity:.4f}")
    sides = (("image", match.image_weights, match.shares.sum(1)), ("text", match.text_weights, match.shares.sum(0)))
    for side, weights, shares in sides:
        for number, head_weights in enumerate(weights):
            word = f"\t{match.words[head_weights.argmax()]}" if side == "text" else ""
            print(f"{side} head {number + 1}\t{shares[number]:+.4f}{word}")
        if len(weights):
            print(f"{side} bias\t{shares[-1]:+.4f}")


def draw_geometric_bias(options: argparse.Namespace) -> None:
    """Draws the geometric bias of a region of a photograph, by layer and head of a captioner."""
    arguments.check_files(options.image, options.boxes)
    arguments.check_outputs({"--figure": options.figure}, [options.image, options.boxes])
    import numpy as np

    from ..data.boxes import boxes_of_images
    from ..models.images import load_image
    from ..visualization import plot_geometric_bias, save_figure

    model, processor = arguments.load_on_device(options.model, "captioning")
    image = load_image(options.image)
    inputs: dict[str, Any] = {}
    if options.boxes is not None:
        [boxes], _ = boxes_of_images(options.boxes, [(None, options.image)], model.config.vision_config)
        boxes = boxes.fitted(*image.size, options.image)
        inputs = {"boxes": boxes.corners * np.tile(image.size, 2), "names": boxes.labels}
    figure = plot_geometric_bias(model, processor, image, options.region, **inputs)
    save_figure(figure, options.figure)


def write_counterfactual(options: argparse.Namespace) -> None:
    """Writes the effect of changed boxes of one image or of many as JSON; draws that of one image."""
    if options.figure and options.counterfactual == "score":
        raise ValueError("--figure draws one image; leave it out with --counterfactual score.")
    arguments.check_outputs({"--figure": options.figure, "--output": options.output}, [options.data])
    from ..tasks import captioning_analysis
    from ..tasks.caption_rows import load_rows, rows_for

    model, processor = arguments.load_on_device(options.model, "captioning")
    rows = load_rows(options.data, options.split, limit=options.limit)
    if "visual_boxes" not in rows.column_names:
        raise ValueError(f"{options.data} has no visual_boxes; give a dataset with boxes.")
    rows_for(model, processor, rows, options.data)
    if options.counterfactual == "score":
        report = captioning_analysis.score_counterfactuals(model, processor, [dict(row) for row in rows])
    else:
        change = pick(options, "region", "other", "figure")
        if options.row >= len(rows):
            raise ValueError(f"{options.data} has {len(rows)} rows, counted from 0; give a smaller --row.")
        row = dict(rows[options.row])
        report = captioning_analysis.explain_counterfactual(model, processor, row, options.counterfactual, **change)
    with arguments.written_lines(options.output) as write:
        write(json.dumps(report, indent=1))
