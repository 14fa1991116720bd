"""The command `hf-ngsan index`: embeds images into an index folder for `hf-ngsan search`."""

import argparse
from pathlib import Path
from typing import Any

from ..io.files import check_place
from ..io.packaged import DUAL_ENCODER, find_model_folder, packaged_models
from .arguments import MODEL, READING, add_shared, load_on_device, may_use_graphs, pick, print_skipped

SUMMARY = "Embed images into an index for search."
EPILOG = """examples:
  hf-ngsan index --images photos --output photos.index
  hf-ngsan index --model DUAL_ENCODER --images images:flickr8k --split train --output flickr8k.index
  hf-ngsan index --images photos --output photos.index --backend milvus:photos.db

To resume a run that was killed, run the same command again. For an existing index, the command adds new images and
embeds changed images again; images that were deleted stay in the index unless you use --prune. An image that cannot be
read is an error; with --skip-errors, such images are left out and listed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help_of_model = f"{MODEL} (default: {DUAL_ENCODER}, a packaged model)"
    add_shared(parser, "--model", required=False, default=DUAL_ENCODER, help=help_of_model)
    add_shared(parser, "--images", "--image-folder", "--engine", *READING, "--num-processes")
    add_shared(parser, "--output", required=True, metavar="DIR", help="folder of the index, new or existing")
    add_shared(parser, "--split", default=None, metavar="NAME", help="split of a dataset to index")
    add_shared(parser, "--batch-size", default=32)
    parser.add_argument(
        "--backend",
        help="search backend: exact, which compares every image, or milvus:URI with the URL of a server or a file "
        "ending in .db (default for a new index: exact)",
    )
    parser.add_argument("--prune", action="store_true", help="remove images that no longer exist from the index")


def check(options: argparse.Namespace) -> None:
    from ..loading.models import load_config

    load_config(options.model, "retrieval")
    images_to_index(options)


def run(options: argparse.Namespace) -> None:
    from ..io.processes import OneProcess, extraction_accelerator
    from ..tasks.retrieval_indexing import write_index

    images = images_to_index(options)
    accelerator: Any = OneProcess()
    encoder = image_graph(options, images)
    if encoder is None:
        from ..tasks.retrieval_search import image_encoder_of

        accelerator = extraction_accelerator()
        encoder = image_encoder_of(*load_on_device(options.model, "retrieval", options.engine))
    folder = Path(find_model_folder(options.model))
    index = write_index(
        encoder,
        images,
        options.output,
        name=options.model if options.model in packaged_models() or not folder.is_dir() else str(folder.absolute()),
        accelerator=accelerator,
        **pick(options, "split", "batch_size", "num_workers", "images_per_shard", "skip_errors", "backend", "prune"),
    )
    if accelerator.is_main_process:
        names, skipped = index.items()
        print_skipped([reason for _, reason in skipped])
        print(f"{options.output}: {len(names)} images, {len(skipped)} skipped. Search it with hf-ngsan search.")
    accelerator.end_training()


def image_graph(options: argparse.Namespace, images: Any) -> Any:
    """Returns the ONNX graph for images of a dual encoder; None if it does not support the options."""
    if images.are_clips or not may_use_graphs(options, len(images)):
        return None
    from ..exporting.onnx_folder import IMAGE, ImageGraph, open_beside

    graph = open_beside(find_model_folder(options.model), [IMAGE], ImageGraph)
    return graph if graph is not None and graph.image_processor and graph.dimension else None


def images_to_index(options: argparse.Namespace) -> Any:
    from ..extraction import list_images
    from ..retrieval import check_new_index

    check_new_index(Path(options.output))
    check_place(Path(options.output))
    return list_images(options.images, options.image_folder, options.split)
