"""The command `hf-ngsan index`: embeds images into an index folder for `hf-ngsan search`."""

import argparse
from pathlib import Path
from typing import Any

from ..io.files import check_place
from ..io.packaged import DUAL_ENCODER, packaged_models
from .arguments import MODEL, READING, add_shared, pick, print_skipped

SUMMARY = "Embed images into an index for search."
EPILOG = """examples:
  hf-ngsan index --images photos --output photos.index
  hf-ngsan index --model DUAL_ENCODER --images images:flickr8k --split train --output flickr8k.index
  hf-ngsan index --images photos --output photos.index --backend milvus:photos.db

The same command resumes a killed run. For an existing index, it adds new images and embeds changed ones again; entries
of deleted images stay unless --prune is given. An image that cannot be read is an error; with --skip-errors, such
images are left out and named."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    help_of_model = f"{MODEL} (default: {DUAL_ENCODER}, which is included)"
    add_shared(parser, "--model", required=False, default=DUAL_ENCODER, help=help_of_model)
    add_shared(parser, "--images", "--image-folder", "--engine", *READING, "--num-processes")
    add_shared(parser, "--output", required=True, metavar="DIR", help="folder of the index")
    add_shared(parser, "--split", default=None, metavar="NAME", help="split of a dataset")
    add_shared(parser, "--batch-size", default=32)
    parser.add_argument(
        "--backend",
        help="search backend: exact compares every image (default of a new index); in milvus:URI, URI is the URL of a "
        "server or a file ending in .db",
    )
    parser.add_argument("--prune", action="store_true", help="remove deleted images from an existing index")


def check(options: argparse.Namespace) -> None:
    from ..loading.models import load_config

    load_config(options.model, "retrieval")
    find_images(options)


def run(options: argparse.Namespace) -> None:
    from ..extraction.extract import extraction_accelerator
    from ..loading.engines import use_engine
    from ..loading.models import find_model_folder, load_model
    from ..models.configuration_vision import lasting_name
    from ..tasks.retrieval_search import index_images

    images = find_images(options)
    model, processor = load_model(options.model, "retrieval")
    accelerator = extraction_accelerator()
    with accelerator.main_process_first():
        use_engine(model.to(accelerator.device), processor, options.engine)
    index = index_images(
        model,
        processor,
        images,
        options.output,
        name=options.model if options.model in packaged_models() else lasting_name(find_model_folder(options.model)),
        accelerator=accelerator,
        **pick(options, "split", "batch_size", "num_workers", "images_per_shard", "skip_errors", "backend", "prune"),
    )
    if accelerator.is_main_process:
        names, skipped = index.items()
        print_skipped([reason for _, reason in skipped])
        print(f"{options.output}: {len(names)} images, {len(skipped)} skipped. Search it with hf-ngsan search.")
    accelerator.end_training()


def find_images(options: argparse.Namespace) -> Any:
    from ..extraction import list_images
    from ..retrieval import check_new_index

    check_new_index(Path(options.output))
    check_place(Path(options.output))
    return list_images(options.images, options.image_folder, options.split)
