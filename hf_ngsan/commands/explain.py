"""The command `hf-ngsan explain`: the heads behind an image-text match, or the effect of geometry on a caption."""

import argparse
import json
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from .arguments import DATASETS, add_shared, check_data, check_files, check_outputs, user_path, whole_number

SUMMARY = """Explain an image-text match, or how a caption depends on boxes.

For a match it shows the share of each attention head, for a caption the effect of a change of boxes."""
EPILOG = f"""examples:
  hf-ngsan explain --model DUAL_ENCODER photo.jpg "a dog jumps over a log" --figure heads.png
  hf-ngsan explain --model runs/scenes --data scenes --counterfactual swap --region 0 --other 1 --figure swap.png
  hf-ngsan explain --model runs/scenes --data scenes --counterfactual score

For a dual encoder, the first line has the cosine similarity of image and text. Each further line has a head, its share
and, for a text head, the word with the largest weight; the bias of a projection counts as a head. Of models of
transformers, a share is the similarity that would be lost without a head of the last layers, to first order.

For a captioner, --counterfactual changes the box of one region; the output is JSON with the captions before and after.
"score" exchanges two boxes in many synthetic scenes; "follow" is the share of captions with the new relation.

{DATASETS}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model")
    parser.add_argument("image", nargs="?", type=user_path, metavar="IMAGE", help="image file or URL")
    parser.add_argument("text", nargs="?", metavar="TEXT", help="text to compare the image with")
    parser.add_argument("--figure", type=user_path, metavar="FILE", help="draw the heads, or the captions")
    add_shared(parser, "--output", help="write the JSON to this file (print it)")
    group = parser.add_argument_group("for a captioner")
    changes = "change of the box of a region: a fifth of the image to the right, twice its size, left and right, ..."
    group.add_argument("--counterfactual", choices=("move", "scale", "mirror", "swap", "score"), help=changes)
    add_shared(group, "--data", required=False)
    add_shared(group, "--split", "--limit")
    group.add_argument("--row", type=whole_number, default=0, metavar="N", help="row of the split, from 0 (0)")
    group.add_argument("--region", type=whole_number, default=0, metavar="N", help="region, from 0 (0)")
    group.add_argument("--other", type=whole_number, default=1, metavar="N", help="the region that it swaps with (1)")


def run(options: argparse.Namespace) -> None:
    if options.counterfactual is not None:
        if options.image is not None or options.data is None:
            raise ValueError("--counterfactual is about rows of a dataset: name it with --data, and leave out IMAGE.")
        explain_counterfactual(options)
    elif options.image is None or options.text is None or options.data is not None or options.output is not None:
        raise ValueError("Give an image and a text for a dual encoder, or --counterfactual and --data for a captioner.")
    else:
        explain_heads(options)


def explain_heads(options: argparse.Namespace) -> None:
    """Prints the similarity of an image and a text, and the share of each head in it; draws the heads."""
    check_files(options.image)
    check_outputs({"--figure": options.figure}, [options.image])
    import numpy as np
    from transformers import PreTrainedModel

    from ..guests.dual_encoders import dual_encoder_of
    from ..io.processes import make_accelerator
    from ..loading.models import is_guest, load_model
    from ..models.attention_maps import attention_maps
    from ..models.image_processing_captioning import load_image
    from ..tasks.retrieval_search import check_query
    from ..visualization import explain_match, plot_match, save_figure
    from ..visualization.heads import explain_match_of_guest
    from ..visualization.plots import FIGURE_SIDE

    model, processor = load_model(options.model, "retrieval")
    if not isinstance(model, PreTrainedModel):
        raise ValueError(f"{options.model} is an exported model, which has no heads to show; give the model itself.")
    image, device = load_image(options.image), make_accelerator().device
    if is_guest(model.config):
        match = explain_match_of_guest(dual_encoder_of(model.to(device), processor), image, options.text)
    else:
        if model.vision is None or processor.image_processor is None:
            raise ValueError(f"{options.model} has no vision encoder, so it reads no images; give a model with one.")
        check_query(processor, options.text)
        inputs = processor(images=image, text=options.text).to(device)
        match = explain_match(model.to(device), processor.tokenizer, inputs)
    print(f"similarity\t{match.similarity:.4f}")
    sides = (("image", match.image_weights, match.shares.sum(1)), ("text", match.text_weights, match.shares.sum(0)))
    for side, weights, shares in sides:
        for number, of_head in enumerate(weights):
            word = f"\t{match.words[of_head.argmax()]}" if side == "text" else ""
            print(f"{side} head {number + 1}\t{shares[number]:+.4f}{word}")
        if len(weights):
            print(f"{side} bias\t{shares[-1]:+.4f}")
    if options.figure:
        image.thumbnail((FIGURE_SIDE, FIGURE_SIDE))
        maps = np.zeros((0, image.height, image.width))
        if len(match.image_weights) and match.boxes is not None:
            maps = attention_maps(match.image_weights, match.boxes, *image.size)
        save_figure(plot_match(image, maps, match), options.figure)


def explain_counterfactual(options: argparse.Namespace) -> None:
    """Writes what changes with the boxes of an image, or of many, as JSON; draws the change of one."""
    check_data(options.data)
    if options.figure and options.counterfactual == "score":
        raise ValueError("--figure draws one image; leave it out with --counterfactual score.")
    check_outputs({"--figure": options.figure, "--output": options.output}, [options.data])
    import numpy as np

    from ..io.files import write_output
    from ..io.processes import make_accelerator
    from ..loading.models import load_captioner
    from ..models.captioning import CaptioningForConditionalGeneration
    from ..tasks.caption_rows import load_rows, rows_for
    from ..tasks.captioning_analysis import change_boxes, explain_change, score_counterfactuals

    model, processor = load_captioner(options.model)
    loaded = load_rows(options.data, options.split, limit=options.limit)
    if "visual_boxes" not in loaded.column_names:
        raise ValueError(f"{options.data} has no visual_boxes, so no geometry to change; give data with boxes.")
    if not isinstance(model, CaptioningForConditionalGeneration):
        raise ValueError(f"{options.model} is not a captioner of regions; give one of this package.")
    rows_for(model, processor, loaded, options.data)
    model = model.to(make_accelerator().device)
    if options.counterfactual == "score":
        report = score_counterfactuals(model, processor, [dict(row) for row in loaded])
    else:
        if options.row >= len(loaded):
            raise ValueError(f"--row {options.row}: the split has rows 0 to {len(loaded) - 1}.")
        row = dict(loaded[options.row])
        boxes, kind = np.asarray(row["visual_boxes"], dtype=np.float32), options.counterfactual
        last = max(options.region, options.other) if kind == "swap" else options.region
        if last >= len(boxes):
            raise ValueError(f"The image has regions 0 to {len(boxes) - 1}; there is no region {last}.")
        changed = change_boxes(boxes, kind, options.region, options.other)
        before, after = explain_change(model, processor, row, changed)
        report = {"image_id": int(row["image_id"]), "change": kind, "before": asdict(before), "after": asdict(after)}
        if options.figure:
            draw_change(row, [before, after], options.figure)
    text = json.dumps(report, indent=1) + "\n"
    if options.output:
        write_output(options.output, text)
    else:
        print(text, end="")


def draw_change(row: dict, sides: list, path: str) -> None:
    import numpy as np

    from ..data import DataError, draw_scene
    from ..data.scenes.scoring import relation_swaps
    from ..visualization import plot_counterfactual, save_figure

    names = list(row.get("objects") or map(str, range(len(row["visual_boxes"]))))
    images: list[Any] = [row.get("image") or np.full((240, 320, 3), 245, np.uint8)] * 2
    with suppress(DataError):  # of rows that are no scenes; COCO layouts have names of objects too
        relation_swaps(row)
        images = [draw_scene({**row, "visual_boxes": np.asarray(side.boxes)}) for side in sides]
    save_figure(plot_counterfactual(images, sides[0], sides[1], names), path)
