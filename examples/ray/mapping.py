"""Shared code of the scripts in this folder: their arguments, and a resumable map over images with Ray Data.

The result is Parquet with all columns of the input except the image, the columns of the model, and `error`, the reason
why an image cannot be read. The same command resumes after a kill and adds new images, because Ray Data keeps the ids
of finished rows in `OUTPUT.done`. Without a running cluster (`ray start --head`), Ray starts one on this machine.
"""

import argparse
import os
from typing import Any

import ray
from ray.data.checkpoint import CheckpointConfig


def make_parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", help="folder of images, or parquet:FOLDER")
    parser.add_argument("output", help="folder of the result")
    parser.add_argument("--image-column", default="bytes", help="bytes of image files, paths, or arrays (%(default)s)")
    parser.add_argument("--id-column", default="path", help="column with a unique value in each row (%(default)s)")
    parser.add_argument("--workers", type=int, default=1, help="copies of the model (%(default)s)")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of each worker, or a fraction of one (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=64)
    return parser


def map_images(model_class: type, options: argparse.Namespace, **arguments: Any) -> None:
    """Maps images with a class of `hf_ngsan.scaling`; `arguments` are passed to its constructor."""
    output = options.output if "://" in options.output else os.path.abspath(options.output)
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray sends usage statistics by default
    ray.init(ignore_reinit_error=True)
    ray.data.DataContext.get_current().checkpoint_config = CheckpointConfig(
        id_column=options.id_column, checkpoint_path=f"{output}.done", delete_checkpoint_on_success=False
    )
    if options.input.startswith("parquet:"):
        rows = ray.data.read_parquet(options.input.removeprefix("parquet:"))
    else:
        rows = ray.data.read_binary_files(options.input, include_paths=True)
    rows.map_batches(
        model_class,
        fn_constructor_kwargs={"column": options.image_column, **arguments},
        batch_size=options.batch_size,
        batch_format="pyarrow",
        concurrency=options.workers,
        num_cpus=0,  # on a small machine, tasks that read, filter and write need the CPUs
        num_gpus=options.gpus,
    ).write_parquet(output, mode="append")
