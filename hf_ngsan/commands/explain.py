"""The command `hf-ngsan explain`: the share of each attention head of a dual encoder in the similarity of a pair."""

import argparse

from ..ground.argument_types import user_path
from .arguments import add_model_argument, check_figure_file

SUMMARY = "Show the share of each attention head in an image-text match."
EPILOG = """examples:
  hf-ngsan explain --model DUAL_ENCODER photo.jpg "a dog jumps over a log"
  hf-ngsan explain --model DUAL_ENCODER photo.jpg "a dog jumps over a log" --figure heads.png

The first line has the cosine similarity of image and text. It is a sum of terms, one for each pair of an image head and
a text head; the bias of a projection counts as another head. Each further line has a head, a tab and the sum of its
terms; that of a text head also has the word with the largest weight. The lines of one side add up to the similarity.
Of CLIP, SigLIP and other models of transformers, the heads are those of the last layers, and the share of a head is
what the similarity would lose without it, to first order; the bias is the rest."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    parser.add_argument("image", type=user_path, metavar="IMAGE", help="image file or URL")
    parser.add_argument("text", metavar="TEXT", help="text to compare the image with")
    parser.add_argument(
        "--figure",
        type=user_path,
        metavar="FILE",
        help="draw the attention map of each head over the image and the words",
    )


def run(options: argparse.Namespace) -> None:
    import numpy as np
    from transformers import PreTrainedModel

    from ..ground.launching import make_accelerator
    from ..guests.dual_encoders import dual_encoder_of
    from ..loading.models import is_guest, load_model
    from ..models.attention_maps import attention_maps
    from ..models.images import load_image
    from ..tasks.retrieval.search import check_query
    from ..visualization import explain_match, plot_match, save_figure
    from ..visualization.heads import explain_match_of_guest
    from ..visualization.plots import FIGURE_SIDE

    if options.figure:
        check_figure_file(options.figure)
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
