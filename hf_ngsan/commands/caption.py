"""The command `hf-ngsan caption`: captions of image files or the images of a dataset."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..io.messages import printable
from ..io.packaged import CAPTIONER, find_model_folder, is_model
from .arguments import (
    DATASETS,
    add_batch_size_argument,
    add_data_arguments,
    add_engine_argument,
    add_generation_arguments,
    add_json_arguments,
    add_model_argument,
    add_skip_errors_argument,
    between,
    check_data,
    check_figure_folder,
    check_images,
    check_output_files,
    generation_arguments,
    json_of,
    print_header,
    user_path,
    written_lines,
)

if TYPE_CHECKING:
    from ..tasks.captioning_files import CaptionedImage

OPTIONS_OF_GRAPHS = {
    "batch_size",
    "command",
    "debug",
    "images",
    "json",
    "limit",
    "max_new_tokens",
    "model",
    "num_beams",
    "output",
    "skip_errors",
    "split",
}
"""Options with which the graphs beside a captioner caption images."""
MAX_IMAGES_OF_GRAPHS = 1000
"""For more than so many, importing torch, which may have a GPU, does not count."""
MAX_SIMILARITY_WEIGHT = 1e6
SUMMARY = """Print a caption for each image.

The images are files, URLs, folders or those of a dataset. Each line of the output has the name or id of an image, a tab
and the caption."""
EPILOG = f"""examples:
  hf-ngsan caption photo.jpg
  hf-ngsan caption --model runs/spatial photo.jpg another.png --save-attention maps
  hf-ngsan caption --model runs/spatial photos --num-beams 5 --skip-errors
  hf-ngsan caption --model runs/first runs/second --data scenes --split test
  hf-ngsan caption --model runs/scenes --data scenes --split test --limit 5 --text "the red"
  hf-ngsan caption photo.jpg --generate required_words=dog,grass
  hf-ngsan caption photo.jpg --generate num_beams=6 num_beam_groups=3 num_return_sequences=3
  hf-ngsan caption photo.jpg --generate penalty_alpha=0.6
  hf-ngsan caption photos --json --output captions.jsonl
  hf-ngsan caption photos --scores

--generate takes the arguments of generate() of transformers, and those of three searches: required_words are in every
caption (constrained beam search), num_beam_groups groups of beams avoid each other's words by diversity_penalty
(diverse beam search), penalty_alpha prefers words that differ from those before them (contrastive search).

{DATASETS}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "images",
        nargs="*",
        type=user_path,
        metavar="IMAGE",
        help="image files, URLs of images, or folders of images, for a model with a vision encoder",
    )
    add_model_argument(parser, CAPTIONER, or_ensemble=True)
    add_data_arguments(parser, required=False)
    add_generation_arguments(parser)
    add_batch_size_argument(parser, 64)
    add_engine_argument(parser)
    parser.set_defaults(engine=None)  # which lets graphs beside the captioner caption
    texts = parser.add_mutually_exclusive_group()
    texts.add_argument("--text", metavar="WORDS", help="words that every caption begins with")
    texts.add_argument(
        "--prompt",
        metavar="TEXT",
        help='instruction for a model that follows one, such as "<DETAILED_CAPTION>" for Florence-2',
    )
    parser.add_argument(
        "--save-attention",
        type=user_path,
        metavar="DIR",
        help="write a figure for each image with the attention map of each word of its caption",
    )
    parser.add_argument(
        "--rerank-with",
        type=user_path,
        metavar="DUAL_ENCODER",
        help="print the beam with the best sum of mean log-probability and weighted similarity to the image, the "
        "cosine of this dual encoder",
    )
    parser.add_argument(
        "--similarity-weight",
        type=between(0, MAX_SIMILARITY_WEIGHT),
        metavar="W",
        help="with --rerank-with: weight of the similarity (2, which was chosen for mhsan-flickr8k)",
    )
    parser.add_argument(
        "--scores",
        action="store_true",
        help="add the mean log-probability of each caption's words and, for a captioner with a calibration such as "
        f"{CAPTIONER}, the probability that it is right and whether its image is unlike the training images",
    )
    add_json_arguments(parser, "caption")
    parser.add_argument(
        "--with-embeddings",
        nargs=2,
        type=user_path,
        metavar=("DUAL_ENCODER", "FILE.npz"),
        help="also write embeddings of the images, in the same pass: arrays names (images,) and embeddings (images, D)",
    )
    add_skip_errors_argument(parser, "an image that cannot be read")


def run(options: argparse.Namespace) -> int:
    # Image files may follow the models without an option between them.
    models = [options.model[0], *filter(is_model, options.model[1:])]
    options.images = [place for place in options.model if place not in models] + options.images
    paths = list(paths_of_images(options.images))[: options.limit]
    check(options, [*models, options.rerank_with, *(options.with_embeddings or ())[:1]], [*paths, options.data])
    captioned = captioned_by_graphs(options, models, paths)
    if captioned is not None:
        return write(options, captioned)
    from ..io.processes import make_accelerator
    from ..loading.engines import use_engine
    from ..loading.models import load_model
    from ..tasks.captioning_generation import caption_images, load_captioners
    from ..tasks.generation_options import checked_generation
    from ..tasks.retrieval_search import SIMILARITY_WEIGHT, ImageStreamEmbedder, Reranker

    model, processor = load_captioners(models)
    own, device = model.generation_config, make_accelerator().device
    assert own is not None
    arguments: dict[str, Any] = checked_generation(generation_arguments(options), own, several=True)
    arguments |= text_of(options, model, processor) | scores_of(options, model)
    images, names = (paths, paths) if paths else rows_of_dataset(options, model, processor)
    if options.rerank_with is not None:
        beams = arguments.setdefault("num_beams", own.num_beams or 1)
        if beams < 2:
            raise ValueError("--rerank-with needs several beams; ask for them with --num-beams.")
        dual_encoder, texts = load_model(options.rerank_with, "retrieval")
        weight = SIMILARITY_WEIGHT if options.similarity_weight is None else options.similarity_weight
        arguments |= {"reranker": Reranker(dual_encoder.to(device), texts, weight), "num_return_sequences": beams}
    embedder = None
    if options.with_embeddings is not None:
        dual_encoder, texts = load_model(options.with_embeddings[0], "retrieval")
        embedder = ImageStreamEmbedder(dual_encoder.to(device), texts, options.batch_size)
        images = embedder.embed_while_reading(images, names)
    use_engine(model.to(device), processor, options.engine or "torch")
    captioned = caption_images(
        model,
        processor,
        images,
        names,
        attention_folder=options.save_attention,
        on_error="skip",
        batch_size=options.batch_size,
        **arguments,
    )
    if options.scores and not options.json and options.output is None:
        print_header("image", "caption", "score", *(["confidence"] if arguments["return_confidence"] else []))
    code = write(options, captioned)
    if embedder is not None:
        embedder.save(options.with_embeddings[1])
    return code


def check(options: argparse.Namespace, models: Iterable[str | None], inputs: Sequence[str | None]) -> None:
    """Raises an error, before torch comes, for options that exclude or need each other, and for missing files."""
    if bool(options.images) == (options.data is not None):
        raise ValueError("Give image files or a dataset, with --data, and not both.")
    if options.similarity_weight is not None and options.rerank_with is None:
        raise ValueError("--similarity-weight needs a dual encoder; name it with --rerank-with.")
    if options.with_embeddings is not None and options.rerank_with is not None:
        raise ValueError("--with-embeddings reads each image once, and --rerank-with again; leave one of the two out.")
    check_data(options.data)
    if not options.skip_errors:
        check_images(options.images)
    embeddings = None if options.with_embeddings is None else options.with_embeddings[1]
    check_output_files({"--output": options.output, "--with-embeddings": embeddings}, inputs)
    if options.save_attention is not None:
        check_figure_folder(options.save_attention, "--save-attention", inputs)
    for name in filter(None, models):
        find_model_folder(name)


def captioned_by_graphs(
    options: argparse.Namespace, models: Sequence[str], paths: Sequence[str]
) -> "Iterator[CaptionedImage] | None":
    """Returns captions by the graphs beside a captioner, which need no torch; None if they cannot do what is asked."""
    given = {name for name, value in vars(options).items() if not (value is None or value is False or value == [])}
    if given - OPTIONS_OF_GRAPHS or len(models) > 1 or not 0 < len(paths) <= MAX_IMAGES_OF_GRAPHS:
        return None
    from ..exporting.onnx_folder import open_captioner
    from ..tasks.captioning_files import caption_files

    captioner = open_captioner(find_model_folder(models[0]))
    if captioner is None:
        return None
    return caption_files(
        captioner,
        paths,
        batch_size=options.batch_size,
        with_scores=options.json,
        num_beams=options.num_beams,
        max_new_tokens=options.max_new_tokens,
    )


def write(options: argparse.Namespace, captioned: "Iterable[CaptionedImage]") -> int:
    """Writes captions, and why images were skipped on the standard error; returns the exit code."""
    from ..tasks.captioning_files import skipped_error

    errors, number = [], 0
    line = json_line if options.json else partial(text_line, with_scores=options.scores)
    with written_lines(options.output) as write_line:
        for caption in captioned:
            if caption.error is not None:
                errors.append(skipped_error(caption.error, options.skip_errors))
            write_line(line(caption))
            number += caption.rank == 0
    for error in errors:
        print(f"hf-ngsan: skipped: {error}", file=sys.stderr)
    if errors:
        print(f"hf-ngsan: {len(errors)} of {number} images were skipped.", file=sys.stderr)
    return 2 if errors and len(errors) == number else 0


def text_line(found: "CaptionedImage", with_scores: bool) -> str:
    """Returns the columns of a caption: name, caption and, if wanted, its score, confidence and a warning."""
    columns = [printable(found.name), found.caption or ""]
    if with_scores and found.score is not None:
        columns.append(f"{found.score:.3f}")
        if found.confidence is not None:
            columns.append(f"{found.confidence:.2f}")
        if found.unlike_training:
            columns.append("unlike the training images")
    return "\t".join(columns)


def json_line(found: "CaptionedImage") -> str:
    """Returns a caption with its scores, or the reason for skipping its image, as a JSON object."""
    if found.error is not None:
        return json_of({"image": found.name, "error": found.error})
    record = {"image": found.name, "caption": found.caption, "score": found.score, "words": found.words}
    if found.confidence is not None:
        record |= {"confidence": found.confidence, "unlike_training": found.unlike_training}
    if found.figure is not None:
        record["attention"] = found.figure
    return json_of(record)


def scores_of(options: argparse.Namespace, model: Any) -> dict[str, bool]:
    """Returns the arguments of the pipeline for scores and confidence; a note says if there is no confidence."""
    from ..loading.confidence import is_calibrated

    if not options.scores:
        return {"return_scores": options.json}
    has_confidence = is_calibrated(model)
    if not has_confidence:
        print(
            f"hf-ngsan: {options.model[0]} has no calibration, so its captions get no probability; make one with "
            "hf-ngsan calibrate.",
            file=sys.stderr,
        )
    return {"return_scores": True, "return_confidence": has_confidence}


def text_of(options: argparse.Namespace, model: Any, processor: Any) -> dict[str, str]:
    """Returns the argument `text` of the pipeline: the beginning of captions, or the prompt.

    Raises:
        ValueError: the captioner takes no prompt, no beginning, or not these words.
    """
    from ..guests.captioners import guest_of
    from ..loading.models import is_guest

    text, kind = options.text if options.prompt is None else options.prompt, model.config.model_type
    if text is None:
        return {}
    guest = guest_of(model, processor) if is_guest(model.config) else None
    takes_prompts = guest is not None and guest.follows_prompts
    if options.prompt is not None and not takes_prompts:
        raise ValueError(f"A {kind} model takes no --prompt; give the beginning of its captions with --text.")
    if options.text is not None and takes_prompts:
        raise ValueError(f"A {kind} model continues no --text; give it an instruction with --prompt.")
    if guest is None and (unknown := processor.unknown_words(text)):
        raise ValueError(f"--text has words that this captioner does not know: {', '.join(map(repr, unknown))}.")
    return {"text": text}


def paths_of_images(places: Iterable[str]) -> Iterator[str]:
    """Yields paths and URLs, with each folder replaced by its images in the order of `hf-ngsan extract`."""
    from ..data.images import sorted_image_files

    for place in places:
        if os.path.isdir(place):
            yield from (str(Path(place, name)) for name in sorted_image_files(Path(place)))
        else:
            yield place


def rows_of_dataset(options: argparse.Namespace, model: Any, processor: Any) -> tuple[Any, list[str]]:
    """Returns the columns of a dataset that the captioner reads, and the image ids."""
    from ..tasks.caption_rows import COLUMNS_READ, check_drawable, load_rows, rows_for

    rows = load_rows(options.data, options.split, with_captions=False, limit=options.limit)
    names = list(map(str, rows["image_id"]))
    draws = options.save_attention is not None
    rows = rows_for(model, processor, rows, options.data, keep_images=draws)
    rows = rows.select_columns([name for name in COLUMNS_READ if name in rows.column_names])
    if draws:
        check_drawable(rows, options.data, options.split)
    return rows, names
