"""The command `hf-ngsan configs`: lists and copies the packaged training configs."""

import argparse

from ..io.packaged import copy_config, describe_config, packaged_config, packaged_configs
from .arguments import user_path

SUMMARY = """List the packaged training configs, or copy one to change it.

To train with one of them, run hf-ngsan train --config NAME."""
EPILOG = """examples:
  hf-ngsan configs
  hf-ngsan configs --copy ngsan/g_san --output mine.yaml"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--copy", metavar="NAME", help="copy this training config with its comments")
    add("--output", type=user_path, metavar="FILE.yaml", help="file of the copy (default: the last part of NAME)")
    add("--overwrite", action="store_true", help="replace an existing file")


def run(options: argparse.Namespace) -> None:
    if options.copy is not None:
        output = options.output or packaged_config(options.copy).name
        copy_config(options.copy, output, overwrite=options.overwrite)
        print(f"Copied {options.copy} to {output}; train with it: hf-ngsan train --config {output}")
        return
    configs = packaged_configs()
    width = max(map(len, configs), default=0)
    for name, file in configs.items():
        print(f"{name:<{width}}  {describe_config(file)}")
