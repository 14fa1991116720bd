"""The command `hf-ngsan index`: embeddings of images in a folder that `hf-ngsan search` reads."""

import argparse

from ..bounds import MOST_WORKERS
from .arguments import (
    add_batch_size_argument,
    add_image_source_arguments,
    add_model_argument,
    at_most,
    user_path,
    whole_number,
)

SUMMARY = "Index images with a dual encoder, for hf-ngsan search."
EPILOG = """examples:
  hf-ngsan index --model DUAL_ENCODER --images photos --output photos.index
  hf-ngsan index --model DUAL_ENCODER --images images:flickr8k --split train --output flickr8k.index
  hf-ngsan index --model DUAL_ENCODER --images photos --output photos.index --to usearch
  hf-ngsan index --model DUAL_ENCODER --images photos --output photos.index --to milvus:http://localhost:19530

The same command continues what a killed run has begun. Images that cannot be read are left out and listed."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_argument(parser)
    add_image_source_arguments(parser)
    parser.add_argument("--output", required=True, type=user_path, metavar="DIR", help="folder of the index")
    parser.add_argument("--split", metavar="NAME", help="of a dataset, the split")
    add_batch_size_argument(parser, 32)
    parser.add_argument(
        "--num-workers",
        type=at_most(MOST_WORKERS, whole_number),
        default=0,
        metavar="N",
        help="processes that read images (the main one)",
    )
    parser.add_argument(
        "--to",
        metavar="BACKEND",
        help="what searches: exact, every image in turn (of a new index); usearch, a graph, approximate and fast, its "
        "hits scored exactly; milvus:URI, a server's URL or a file ending in .db",
    )
    parser.add_argument("--strict", action="store_true", help="stop at an image that cannot be read")


def run(options: argparse.Namespace) -> None:
    from ..extraction import list_images
    from ..launching import make_accelerator
    from ..loading import find_model_folder, load_model
    from ..models.configuration_vision import lasting_name
    from ..tasks.image_search import index_images
    from .extract import print_skipped

    images = list_images(options.images, options.image_folder, options.split)
    model, processor = load_model(options.model, "retrieval")
    index = index_images(
        model.to(make_accelerator().device),
        processor,
        images,
        options.output,
        name=lasting_name(find_model_folder(options.model)),
        split=options.split,
        batch_size=options.batch_size,
        num_workers=options.num_workers,
        strict=options.strict,
        backend=options.to,
    )
    names, skipped = index.items()
    print_skipped([reason for _, reason in skipped])
    print(f"{options.output}: {len(names)} images, {len(skipped)} skipped. Search it with hf-ngsan search.")
