"""The command `hf-ngsan score`: computes caption metrics of a COCO result file."""

import argparse
import json

from ..metrics.registry import DEFAULT_METRICS, METRICS
from .arguments import check_outputs, load_on_device, user_path

SUMMARY = "Score captions in a COCO result file against references."
EPILOG = """examples:
  hf-ngsan score --predictions results.json --references captions_val.json
  hf-ngsan score --predictions results.json --references captions_val.json --per-image scores.json
  hf-ngsan score --compare ours.json theirs.json --references captions_val.json --metrics meteor cider_d

cider_d is the metric that papers and the COCO evaluation call CIDEr; cider is the original formula. Both go up to 10.
meteor needs pip install 'hf-ngsan[eval]'."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    predictions = parser.add_mutually_exclusive_group(required=True)
    results = 'COCO results: [{"image_id": 1, "caption": "..."}], or JSON lines; image ids may be strings'
    predictions.add_argument("--predictions", type=user_path, metavar="RESULTS.json", help=results)
    compared = "two result files to compare, with the 95%% intervals of a paired bootstrap over images"
    predictions.add_argument("--compare", nargs=2, type=user_path, metavar=("A.json", "B.json"), help=compared)
    captions = "COCO captions of the same images, or JSON lines"
    parser.add_argument("--references", required=True, type=user_path, metavar="CAPTIONS.json", help=captions)
    add, metrics = parser.add_argument, f"metrics: {', '.join(METRICS)} (default: {', '.join(DEFAULT_METRICS)})"
    add("--metrics", nargs="+", choices=METRICS, default=[*DEFAULT_METRICS], metavar="METRIC", help=metrics)
    add("--clip-score", type=user_path, metavar="DUAL_ENCODER", help="also CLIPScore and RefCLIPScore, by this model")
    add("--image-folder", type=user_path, metavar="DIR", help="folder of the images, for --clip-score")
    cut = "with --clip-score, truncate captions that are too long for the dual encoder (default: an error)"
    add("--truncate-captions", action="store_true", help=cut)
    add("--language", default="en", metavar="CODE", help="language of the captions")
    add("--per-image", type=user_path, metavar="FILE.json", help="also write the scores of each image to this file")


def run(options: argparse.Namespace) -> None:
    if options.compare is not None:
        if options.per_image is not None or options.clip_score is not None:
            raise ValueError("--compare accepts only --references and --metrics; leave out the other options.")
        print_comparison(options)
        return
    if (options.clip_score is None) != (options.image_folder is None):
        raise ValueError("CLIPScore needs the images; give --clip-score and --image-folder together.")
    if options.truncate_captions and options.clip_score is None:
        raise ValueError("--truncate-captions needs --clip-score; leave it out.")
    check_outputs({"--per-image": options.per_image}, [options.predictions, options.references, options.image_folder])
    score(options)


def score(options: argparse.Namespace) -> None:
    """Prints the scores of captions and writes the scores of each image."""
    from ..data.coco_files import match_results, read_references, read_results
    from ..io.files import write_output
    from ..languages import caption_units
    from ..metrics import CaptionMetrics

    results, references = read_results(options.predictions), read_references(options.references)
    images, predictions, matched = match_results(results, references, options.predictions, options.references)
    metric = CaptionMetrics(metrics=options.metrics, tokenizer=caption_units(options.language))
    scores = metric.compute(predictions=predictions, references=matched, per_image=options.per_image is not None)
    per_image = scores.pop("per_image", None)
    if options.clip_score is not None:
        clip = clip_scores(options, images, predictions, matched)
        image_scores = clip.pop("per_image")
        per_image = per_image and {**per_image, **image_scores}
        scores |= clip
    if per_image is not None:
        rows = zip(images, *per_image.values(), strict=True)
        entries = [dict(zip(("image_id", *per_image), row, strict=True)) for row in rows]
        write_output(options.per_image, json.dumps(entries, ensure_ascii=False, indent=1))
    width = 14 if options.clip_score else 8
    for name, value in scores.items():
        print(f"{name:<{width}} {value:.4f}")
    left_out = len(references) - len(images)
    note = f"; {left_out} image(s) of {options.references} have no prediction" if left_out else ""
    print(f"{len(images)} images, tokenizer {metric.tokenizer}{note}")


def clip_scores(options: argparse.Namespace, ids: list, predictions: list[str], references: list[list[str]]) -> dict:
    """Returns CLIPScore and RefCLIPScore of captions; the scores of each image are under "per_image"."""
    from ..extraction import list_images
    from ..guests.dual_encoders import dual_encoder_of
    from ..metrics.clip_score import ClipScore

    listed = list_images(options.references, options.image_folder)
    places = {str(image.image_id): str(listed.folder / image.file_name) for image in listed.images}
    missing = [image_id for image_id in ids if str(image_id) not in places]
    if missing:
        raise ValueError(f"{options.references} has no file name for image {missing[0]}; --clip-score needs one.")
    encoder = dual_encoder_of(*load_on_device(options.clip_score, "retrieval"))
    images = [places[str(image_id)] for image_id in ids]
    metric = ClipScore(encoder, truncate=options.truncate_captions)
    return metric.compute(predictions=predictions, images=images, references=references, per_image=True)


def print_comparison(options: argparse.Namespace) -> None:
    """Prints the differences between two systems, with intervals."""
    from ..data.coco_files import match_results, read_references, read_results
    from ..languages import caption_units
    from ..metrics import CaptionMetrics, compare_captions

    references = read_references(options.references)
    (images, first, matched), (others, second, _) = (
        match_results(read_results(path), references, path, options.references) for path in options.compare
    )
    missing = set(images) ^ set(others)
    if missing:
        raise ValueError(f"{' and '.join(options.compare)} have different images, such as {min(missing, key=str)}.")
    captions_of_images = dict(zip(others, second, strict=True))
    metric = CaptionMetrics(metrics=options.metrics, tokenizer=caption_units(options.language))
    scores = compare_captions(metric, first, [captions_of_images[image] for image in images], matched)
    print(f"{'metric':<8} {'A':>7} {'B':>7} {'A - B':>8} {'95% interval':>20} {'p':>7} {'p (Holm)':>9}")
    for name, result in scores.items():
        low, high = result.comparison.interval
        interval = f"[{low:+.4f}, {high:+.4f}]"
        print(
            f"{name:<8} {result.first:7.4f} {result.second:7.4f} {result.comparison.difference:+8.4f} "
            f"{interval:>20} {result.comparison.p_value:7.4f} {result.p_holm:9.4f}"
        )
    print(f"{len(images)} images; A - B is the mean over images; p tests that there is no difference")
