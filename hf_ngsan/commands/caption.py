"""The command `hf-ngsan caption`: captions of image files or the images of a dataset."""

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ..io.files import read_json_or_none
from ..io.messages import printable
from ..io.packaged import CAPTIONER, find_model_folder, is_model
from . import arguments
from .arguments import add_shared, user_path

NOT_OF_GRAPHS = ("boxes", "data", "generate", "rerank_with", "save_attention", "text")
SUMMARY = """Print a caption for each image or video.

The images come from files, URLs, folders or a dataset. Each line of the output has the name or id of an image, a tab
and the caption."""
EPILOG = """examples:
  hf-ngsan caption photo.jpg
  hf-ngsan caption --model runs/spatial photo.jpg another.png --save-attention maps
  hf-ngsan caption --model runs/scenes --data scenes --split test --limit 5 --text "the red"
  hf-ngsan caption photo.jpg --generate required_words=dog,grass
  hf-ngsan caption photo.jpg --generate num_beams=6 num_beam_groups=3 num_return_sequences=3
  hf-ngsan caption photos --scores

--generate accepts the arguments of generate() in transformers, and those of two other beam searches. With
required_words, every caption contains these words (constrained beam search). With num_beam_groups, each group of beams
is penalized by diversity_penalty for words of the earlier groups (diverse beam search). With forbidden_words, no
caption contains these words."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("images", nargs="*", type=user_path, metavar="IMAGE", help="image or video files, URLs or folders")
    models = f"{arguments.MODEL}; several models form an ensemble (default: {CAPTIONER}, a packaged model)"
    add_shared(parser, "--model", required=False, default=[CAPTIONER], nargs="+", help=models)
    add_shared(parser, "--data", required=False)
    add_shared(parser, "--boxes", "--split", "--limit", *arguments.GENERATION, "--json", "--output", "--skip-errors")
    add_shared(parser, "--batch-size", default=64)
    add_shared(parser, "--engine")
    text = "first words of every caption; or the instruction, for models such as Florence-2"
    add("--text", "--prompt", metavar="WORDS", help=text)
    add("--save-attention", type=user_path, metavar="DIR", help="folder for figures of the attention per word")
    rerank = "print the beam with the highest sum of log-probability and similarity to the image in this dual encoder"
    add("--rerank-with", type=user_path, metavar="DUAL_ENCODER", help=rerank)
    scores = "also print the score (mean log-probability) and, for a calibrated captioner, the confidence"
    add("--scores", action="store_true", help=scores)


def run(options: argparse.Namespace) -> int:
    # Image files may follow the models without an option between them.
    models = [options.model[0], *filter(is_model, options.model[1:])]
    options.images = [place for place in options.model if place not in models] + options.images
    paths = list(paths_of_files(options.images, models[0]))[: options.limit]
    check(options, models, [*paths, options.data])
    by_graphs = captioned_by_graphs(options, models, paths)
    return write(options, captioned_by_model(options, models, paths) if by_graphs is None else by_graphs)


def check(options: argparse.Namespace, models: Sequence[str], inputs: Sequence[str | None]) -> None:
    """Raises an error, before torch is imported, for options that exclude each other and for missing files."""
    if bool(options.images) == (options.data is not None):
        raise ValueError("Give either image files or a dataset (--data), not both.")
    if options.boxes is not None and options.data is not None:
        raise ValueError("--boxes needs image files instead of --data; for a dataset, use hf-ngsan extract --boxes.")
    if not options.skip_errors:
        arguments.check_files(*options.images, options.boxes)
    arguments.check_outputs({"--output": options.output}, inputs)
    arguments.check_figures("--save-attention", options.save_attention, inputs)
    for name in filter(None, [*models, options.rerank_with]):
        find_model_folder(name)


def paths_of_files(places: Iterable[str], model: str) -> Iterator[str]:
    """Yields paths and URLs; each folder is replaced by its images, or by its videos for a video captioner."""
    from ..data.images import SUFFIXES, VIDEO_SUFFIXES, sorted_files

    for place in places:
        if os.path.isdir(place):
            config = read_json_or_none(Path(find_model_folder(model)) / "config.json")
            takes_clips = isinstance(config, dict) and (config.get("vision_config") or {}).get("kind") == "frames"
            names = sorted_files(Path(place), VIDEO_SUFFIXES if takes_clips else SUFFIXES)
            yield from (str(Path(place, name)) for name in names)
        else:
            yield place


def captioned_by_graphs(options: argparse.Namespace, models: Sequence[str], paths: Sequence[str]) -> Any:
    """Returns captions from the ONNX graphs in the model's folder, without torch; None if the options need torch."""
    asks_more = any(getattr(options, name) for name in NOT_OF_GRAPHS)
    if asks_more or len(models) > 1 or not arguments.may_use_graphs(options, len(paths)):
        return None
    from ..exporting.onnx_folder import FOLDER, MADE_FROM, open_captioner
    from ..loading.calibration import read_calibration
    from ..tasks.captioning_files import GraphJudge, caption_files

    folder = find_model_folder(models[0])
    captioner = open_captioner(folder)
    if captioner is None:
        return None
    checked = read_json_or_none(Path(folder) / FOLDER / MADE_FROM)  # these checksums are those of the files
    try:
        calibration = read_calibration(folder, checked)
        judge = None if calibration is None else GraphJudge(calibration)
    except (FileNotFoundError, ValueError):  # loading the models with torch reports the error
        return None
    if options.scores and judge is None:
        print_uncalibrated(models[0])
    search = arguments.pick(options, "batch_size", "num_beams", "max_new_tokens")
    return caption_files(captioner, paths, with_scores=options.json or options.scores, judge=judge, **search)


def print_uncalibrated(model: str) -> None:
    message = "is not calibrated, so its captions have no probability; calibrate it with hf-ngsan calibrate."
    print(f"hf-ngsan: {model} {message}", file=sys.stderr)


def captioned_by_model(options: argparse.Namespace, models: Sequence[str], paths: Sequence[str]) -> Iterator[Any]:
    from ..io.processes import make_accelerator
    from ..loading.calibration import is_calibrated
    from ..loading.engines import use_engine
    from ..tasks.captioning_generation import caption_images, load_captioners
    from ..tasks.new_models import checked_generation
    from ..tasks.retrieval_search import Reranker

    model, processor = load_captioners(models)
    if hasattr(processor, "unknown_words") and (unknown := processor.unknown_words(options.text or "")):
        raise ValueError(f"--text has words outside of the captioner's vocabulary: {', '.join(map(repr, unknown))}.")
    defaults: Any = model.generation_config
    settings: dict[str, Any] = checked_generation(arguments.generation_arguments(options), defaults, several=True)
    settings |= {"text": options.text, "return_scores": options.json or options.scores}
    device = make_accelerator().device
    if is_calibrated(model):
        settings["return_confidence"] = options.scores or judge_of(models, device)
    elif options.scores:
        print_uncalibrated(models[0])
    images, names = (paths, paths) if paths else rows_of_dataset(options, model, processor)
    if options.boxes is not None:
        images = with_boxes(options, paths, model.config)
    if options.rerank_with is not None:
        beams = settings.setdefault("num_beams", defaults.num_beams or 1)
        if beams < 2:
            raise ValueError("--rerank-with needs several beams; set --num-beams.")
        reranker = Reranker(*arguments.load_on_device(options.rerank_with, "retrieval"))
        settings |= {"reranker": reranker, "num_return_sequences": beams}
    use_engine(model.to(device), processor, options.engine)
    return caption_images(
        model,
        processor,
        images,
        names,
        attention_folder=options.save_attention,
        on_error="skip",
        batch_size=options.batch_size,
        **settings,
    )


def judge_of(models: Sequence[str], device: Any) -> Any:
    """Returns the judge of captions without --scores; None, and prints the reason, if the calibration is unusable."""
    from ..loading.confidence import Confidence

    try:
        return Confidence(models[0], device) if len(models) == 1 else None
    except (ImportError, OSError, ValueError) as error:
        print(f"hf-ngsan: doubtful captions get no warning: {error}", file=sys.stderr)
        return None


def with_boxes(options: argparse.Namespace, paths: Sequence[str], config: Any) -> list[dict[str, Any]]:
    """Returns images with their boxes from --boxes, selected as in the extraction of the training features."""
    from ..data.boxes import boxes_of_images
    from ..data.coco_files import number_at_the_end

    vision = getattr(config, "vision_config", None)
    if not hasattr(vision, "num_regions"):
        raise ValueError("--boxes needs a captioner with a vision encoder (hf-ngsan attach-vision).")
    images = [(number_at_the_end(path), path) for path in paths]
    boxes, notes = boxes_of_images(options.boxes, images, vision, options.skip_errors)
    for note in notes:
        print(f"hf-ngsan: {note}", file=sys.stderr)
    return [{"image": path, "boxes": image_boxes} for path, image_boxes in zip(paths, boxes, strict=True)]


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


def write(options: argparse.Namespace, captioned: Iterable[Any]) -> int:
    """Writes captions, and warnings and skipped images to stderr; returns the exit code."""
    from ..tasks.captioning_files import skipped_error

    errors, number = [], 0
    with arguments.written_lines(options.output) as write_line:
        for caption in captioned:
            if caption.error is not None:
                errors.append(skipped_error(caption.error, options.skip_errors))
            write_line(json_line(caption, options.scores) if options.json else text_line(caption, options.scores))
            number += caption.rank == 0
            if caption.doubt is not None and caption.rank == 0:
                print(f"hf-ngsan: {printable(caption.name)}: {caption.doubt}", file=sys.stderr)
    if errors:
        print(*(f"hf-ngsan: skipped: {error}" for error in errors), sep="\n", file=sys.stderr)
        print(f"hf-ngsan: {len(errors)} of {number} images were skipped.", file=sys.stderr)
    return 2 if errors and len(errors) == number else 0


def text_line(image: Any, with_scores: bool) -> str:
    """Returns the columns of a caption: name, caption and, with `with_scores`, its score, confidence and a warning."""
    columns = [printable(image.name), image.caption or ""]
    if with_scores and image.score is not None:
        columns.append(f"{image.score:.3f}")
        if image.confidence is not None:
            columns.append(f"{image.confidence:.2f}")
        if image.unlike_training:
            columns.append("unlike the training images")
    return "\t".join(columns)


def json_line(image: Any, with_confidence: bool) -> str:
    """Returns a JSON object with a caption and, if requested, its confidence, or with why its image was skipped."""
    if image.error is not None:
        return arguments.json_of({"image": image.name, "error": image.error})
    record = {"image": image.name, "caption": image.caption, "score": image.score, "words": image.words}
    if with_confidence and image.confidence is not None:
        record |= {"confidence": image.confidence, "unlike_training": image.unlike_training}
    if image.figure is not None:
        record["attention"] = image.figure
    return arguments.json_of(record)
