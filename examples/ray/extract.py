"""Extracts visual features of photographs with Ray Data, on one machine or a cluster.

    python examples/ray/extract.py photos features
    python examples/ray/extract.py s3://bucket/photos s3://bucket/features --workers 8 --gpus 1
    python examples/ray/extract.py parquet:rows features --image-column image --id-column image_id

The result is Parquet with the columns of the input but the image, those of the feature contract, and `error`, the
reason why an image cannot be read. The same command resumes after a kill and adds images that are new: Ray Data keeps
the ids of finished rows in `OUTPUT.done`. Without a running cluster (`ray start --head`) one is begun on this machine.
"""

import argparse
import os

import ray
from ray.data.checkpoint import CheckpointConfig

from hf_ngsan.scaling import ImageEncoder


def read(options: argparse.Namespace) -> ray.data.Dataset:
    """Returns rows with the bytes and paths of image files, or those of Parquet files."""
    if options.input.startswith("parquet:"):
        return ray.data.read_parquet(options.input.removeprefix("parquet:"))
    return ray.data.read_binary_files(options.input, include_paths=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", help="folder of images, or parquet:FOLDER")
    parser.add_argument("output", help="folder of the result")
    parser.add_argument("--image-column", default="bytes", help="bytes of image files, paths, or arrays (%(default)s)")
    parser.add_argument("--id-column", default="path", help="column whose values differ in all rows (%(default)s)")
    parser.add_argument("--backbone", required=True, help="name or folder of a backbone or detection model")
    parser.add_argument("--workers", type=int, default=1, help="copies of the model (%(default)s)")
    parser.add_argument("--gpus", type=float, default=0, help="GPUs of each worker, or a share of one (%(default)s)")
    parser.add_argument("--batch-size", type=int, default=64)
    options = parser.parse_args()

    output = options.output if "://" in options.output else os.path.abspath(options.output)
    ray.init(ignore_reinit_error=True)
    ray.data.DataContext.get_current().checkpoint_config = CheckpointConfig(
        id_column=options.id_column, checkpoint_path=f"{output}.done", delete_checkpoint_on_success=False
    )
    rows = read(options).map_batches(
        ImageEncoder,
        fn_constructor_kwargs={"backbone": options.backbone, "column": options.image_column},
        batch_size=options.batch_size,
        batch_format="pyarrow",
        concurrency=options.workers,
        num_cpus=0,  # of a small machine the processors are for those who read, filter and write
        num_gpus=options.gpus,
    )
    rows.write_parquet(output, mode="append")


if __name__ == "__main__":
    main()
