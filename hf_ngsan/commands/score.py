"""The command `hf-ngsan score`: caption metrics of a COCO result file."""

import argparse
import json
from pathlib import Path

from .arguments import check_output_file, user_path

METRICS = ("cider_d", "bleu", "rouge_l", "cider", "meteor", "spice")
DEFAULT_METRICS = ("cider_d", "bleu", "rouge_l", "cider")
SUMMARY = "Score captions in a COCO result file against references."
EPILOG = """examples:
  hf-ngsan score --predictions results.json --references captions_val.json
  hf-ngsan score --predictions results.json --references captions_val.json --metrics bleu cider_d meteor
  hf-ngsan score --predictions results.json --references captions_val.json --per-image scores.json
  hf-ngsan score --compare ours.json theirs.json --references captions_val.json --metrics meteor cider_d
  hf-ngsan score --predictions captions_test2014_mine_results.json --check-server-format

cider_d is what papers and the COCO evaluation call CIDEr; cider is the plain formula, also from 0 to 10. meteor needs
pip install 'hf-ngsan[eval]'; spice also needs Java and the models of Stanford CoreNLP."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    predictions = parser.add_mutually_exclusive_group(required=True)
    predictions.add_argument(
        "--predictions",
        type=user_path,
        metavar="RESULTS.json",
        help='COCO results: [{"image_id": 1, "caption": "..."}], or JSON lines; image ids may be strings',
    )
    predictions.add_argument(
        "--compare",
        nargs=2,
        type=user_path,
        metavar=("A.json", "B.json"),
        help="compare the results of two systems: differences with 95%% intervals of a paired bootstrap over images",
    )
    parser.add_argument(
        "--references", type=user_path, metavar="CAPTIONS.json", help="COCO captions of the same split, or JSON lines"
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        choices=METRICS,
        default=list(DEFAULT_METRICS),
        help="metrics to compute (%(default)s)",
        metavar="METRIC",
    )
    parser.add_argument(
        "--document-frequency",
        type=user_path,
        metavar="FILE.npz",
        help="document frequencies for CIDEr, written by DocumentFrequency.save (those of the references)",
    )
    parser.add_argument(
        "--clip-score",
        type=user_path,
        metavar="DUAL_ENCODER",
        help="also CLIPScore and RefCLIPScore by this dual encoder; needs --image-folder",
    )
    parser.add_argument(
        "--image-folder", type=user_path, metavar="DIR", help="images, by their file names in the file of references"
    )
    parser.add_argument(
        "--truncate-captions",
        action="store_true",
        help="for --clip-score: cut captions that are longer than the text encoder takes (they are refused)",
    )
    parser.add_argument("--per-image", type=user_path, metavar="FILE.json", help="also write the scores of each image")
    parser.add_argument(
        "--check-server-format",
        action="store_true",
        help="only check that the COCO server accepts the file; --references then names a file with all images",
    )


def run(options: argparse.Namespace) -> None:
    if options.check_server_format:
        if options.predictions is None:
            raise ValueError("--check-server-format checks one file; name it with --predictions.")
        run_server_check(options)
        return
    check(options)
    if options.compare is not None:
        run_comparison(options)
        return
    from ..data.coco_files import match_results, read_references, read_results
    from ..io.files import write_file_atomically
    from ..metrics.document_frequency import DocumentFrequency
    from ..metrics.evaluation import CaptionMetrics

    results, references = read_results(options.predictions), read_references(options.references)
    images, predictions, matched = match_results(results, references, options.predictions, options.references)
    frequency = None if options.document_frequency is None else DocumentFrequency.load(options.document_frequency)
    scores = CaptionMetrics(frequency, metrics=options.metrics).compute(
        predictions=predictions, references=matched, per_image=options.per_image is not None
    )
    per_image = scores.pop("per_image", None)
    if options.clip_score is not None:
        clip = clip_scores(options, images, predictions, matched)
        per_image = per_image and {**per_image, **clip["per_image"]}
        scores |= {name: value for name, value in clip.items() if name != "per_image"}
    if per_image is not None:
        rows = zip(images, *per_image.values(), strict=True)
        entries = [dict(zip(("image_id", *per_image), row, strict=True)) for row in rows]
        text = json.dumps(entries, ensure_ascii=False, indent=1)
        write_file_atomically(options.per_image, lambda file: file.write(text.encode()))
    width = 14 if options.clip_score else 8
    for name, value in scores.items():
        print(f"{name:<{width}} {value:.4f}")
    left_out = len(references) - len(images)
    note = f"; {left_out} image(s) of {options.references} have no prediction" if left_out else ""
    print(f"{len(images)} images{note}")


def check(options: argparse.Namespace) -> None:
    """Raises a ValueError or an OSError for options that are missing, need each other or name no file to write."""
    if options.compare is not None and (options.per_image is not None or options.clip_score is not None):
        raise ValueError("--compare goes with --references, --metrics and --document-frequency only.")
    if options.references is None:
        raise ValueError("The references are missing; name their file with --references CAPTIONS.json.")
    if (options.clip_score is None) != (options.image_folder is None):
        raise ValueError("CLIPScore needs the images; give --clip-score and --image-folder together.")
    if options.truncate_captions and options.clip_score is None:
        raise ValueError("--truncate-captions is for --clip-score; leave it out.")
    if options.per_image is not None:
        inputs = [options.predictions, options.references, options.document_frequency, options.image_folder]
        check_output_file(options.per_image, "--per-image", inputs)
        folder = Path(options.per_image).parent
        if not folder.is_dir():
            raise FileNotFoundError(f"--per-image {options.per_image}: the folder {folder} does not exist; create it.")


def clip_scores(options: argparse.Namespace, ids: list, predictions: list[str], references: list[list[str]]) -> dict:
    """Returns CLIPScore and RefCLIPScore of captions, and those of each image under "per_image"."""
    from ..extraction.image_list import list_images
    from ..guests.dual_encoders import dual_encoder_of
    from ..io.launching import make_accelerator
    from ..loading.models import load_model
    from ..metrics.clip_score import ClipScore

    listed = list_images(options.references, options.image_folder)
    places = {str(image.image_id): place for place, image in enumerate(listed.images)}
    missing = [one for one in ids if str(one) not in places]
    if missing:
        raise ValueError(f"{options.references} names no image file of image {missing[0]}, which --clip-score needs.")
    model, processor = load_model(options.clip_score, "retrieval")
    metric = ClipScore(
        dual_encoder_of(model.to(make_accelerator().device), processor), truncate=options.truncate_captions
    )
    images = [str(listed.path_of(places[str(one)])) for one in ids]
    return metric.compute(predictions=predictions, images=images, references=references, per_image=True)


def run_comparison(options: argparse.Namespace) -> None:
    from ..data.coco_files import match_results, read_references, read_results
    from ..metrics.document_frequency import DocumentFrequency
    from ..metrics.evaluation import CaptionMetrics, compare_captions

    references = read_references(options.references)
    (images, first, matched), (others, second, _) = (
        match_results(read_results(path), references, path, options.references) for path in options.compare
    )
    missing = set(images) ^ set(others)
    if missing:
        raise ValueError(
            f"{' and '.join(map(str, options.compare))} have captions of different images, such as "
            f"{min(missing, key=str)}; a paired comparison needs the same."
        )
    of_image = dict(zip(others, second, strict=True))
    frequency = None if options.document_frequency is None else DocumentFrequency.load(options.document_frequency)
    metric = CaptionMetrics(frequency, metrics=options.metrics)
    found = compare_captions(metric, first, [of_image[image] for image in images], matched)
    print(f"{'metric':<8} {'A':>7} {'B':>7} {'A - B':>8} {'95% interval':>20} {'p':>7} {'p (Holm)':>9}")
    for name, score in found.items():
        low, high = score.comparison.interval
        interval = f"[{low:+.4f}, {high:+.4f}]"
        print(
            f"{name:<8} {score.first:7.4f} {score.second:7.4f} {score.comparison.difference:+8.4f} {interval:>20} "
            f"{score.comparison.p_value:7.4f} {score.p_holm:9.4f}"
        )
    print(f"{len(images)} images; A - B is the mean over images, and p that of no difference")


def run_server_check(options: argparse.Namespace) -> None:
    from ..data.coco_files import check_server_format, images_by_id, read_json

    path = options.references
    image_ids = None if path is None else list(images_by_id(read_json(path), path))
    number, notes = check_server_format(options.predictions, image_ids)
    coverage = "" if image_ids is None else ", one for every image of the split"
    print(f"{options.predictions}: {number} results in the format of the COCO server{coverage}.")
    for note in notes:
        print(f"Note: {note}")
