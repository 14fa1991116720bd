"""The command `hf-ngsan search`: finds the images of an index that are most similar to a text or an image."""

import argparse
import sys
from pathlib import Path

from ..io.messages import printable
from ..io.packaged import find_model_folder
from .arguments import add_shared, check_files, check_outputs, json_of, load_on_device, pick, positive_int, user_path

SUMMARY = """Find images of an index by a text or by another image.

Each line of the output has the similarity, the name of an image and its captions, separated by tabs. With several
indexes, the name of the index comes before the name of the image. If the dual encoder is calibrated, a warning on
stderr tells you when no image matches the text."""
EPILOG = """examples:
  hf-ngsan search photos.index "a dog jumps over a log"
  hf-ngsan search photos.index --image photo.jpg --top-k 20
  hf-ngsan search photos-1.index photos-2.index "a dog jumps over a log"
  hf-ngsan search photos.index "a dog jumps over a log" --filter "width > 500"

The captions come from the COCO file or dataset that was indexed, such as images:photos. --filter is for indexes in
Milvus; its expressions can use name, captions, width and height."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("index", nargs="+", type=user_path, metavar="INDEX", help="folders written by hf-ngsan index with one model")
    add("text", nargs="?", metavar="TEXT", help="text to search for")
    add("--image", type=user_path, metavar="FILE", help="image file or URL to search for, instead of a text")
    add("--top-k", type=positive_int, default=9, metavar="K", help="maximum number of images")
    add("--figure", type=user_path, metavar="FILE", help="write a figure of the images with their scores to this file")
    add_shared(parser, "--json", help="print one JSON object per line, with whether the image matches the text")
    add("--filter", default="", metavar="EXPRESSION", help="search only images that match this Milvus expression")
    add("--model", type=user_path, metavar="DIR", help="model that made the index, if its folder was moved")


def run(options: argparse.Namespace) -> None:
    from ..loading.calibration import read_search_calibration
    from ..retrieval import IndexFolder

    if options.image is None and len(options.index) > 1:  # argparse assigns all words to the indexes
        *options.index, options.text = options.index
    if (options.text is None) == (options.image is None):
        raise ValueError("Give either a text or an image (--image).")
    check_files(options.image)
    check_outputs({"--figure": options.figure}, [options.image, *options.index])
    indexes = [IndexFolder.open(Path(folder)) for folder in options.index]
    by_graph = hits_by_graph(options, indexes)
    hits = hits_by_model(options, indexes) if by_graph is None else by_graph
    model = options.model or indexes[0].description.model
    calibration = None if options.text is None else read_search_calibration(model)
    for hit in hits:
        if options.json:
            record = {"score": hit.score, "index": options.index[hit.index_number], "image": hit.name}
            near = {} if calibration is None else {"near_enough": hit.score >= calibration.min_similarity}
            print(json_of({**record, "captions": hit.captions, **near}))
            continue
        captions = " | ".join(" ".join(caption.split()) for caption in hit.captions)
        folder = [options.index[hit.index_number]] if len(indexes) > 1 else []
        print("\t".join([f"{hit.score:.4f}", *map(printable, [*folder, hit.name]), *filter(None, [captions])]))
    if calibration is not None and (missing := calibration.missing(hits[0].score)):
        print(f"hf-ngsan: {missing}", file=sys.stderr)


def hits_by_graph(options: argparse.Namespace, indexes: list) -> list | None:
    """Returns the hits with the ONNX graphs in the model's folder, without torch; None if the options need torch."""
    if options.figure is not None or options.modules:
        return None
    from ..exporting.onnx_folder import open_dual_encoder, open_text_graph
    from ..models.images import load_image
    from ..retrieval import search_current

    folder = find_model_folder(options.model or indexes[0].description.model)
    encoders = (None, open_text_graph(folder)) if options.image is None else open_dual_encoder(folder)
    images, texts = encoders or (None, None)
    if texts is None or any(index.description.fingerprint != texts.fingerprint for index in indexes):
        return None
    query = None
    if images is None:
        query = texts.embed(options.text)
    elif images.image_processor is not None:
        query = images.embed(images.image_processor([load_image(options.image)]))
    if query is None:
        return None
    return search_current(indexes, texts.fingerprint, query, options.top_k, filter=options.filter)


def hits_by_model(options: argparse.Namespace, indexes: list) -> list:
    """Returns the hits with the model, and draws them if a figure is requested."""
    from ..tasks.retrieval_search import draw_hits, search_images

    model, processor = load_on_device(options.model or indexes[0].description.model, "retrieval")
    hits = search_images(model, processor, indexes, **pick(options, "text", "image", "top_k", "filter"))
    if options.figure:
        draw_hits(indexes, hits, options.text or f"images like {options.image}", options.figure)
    return hits
