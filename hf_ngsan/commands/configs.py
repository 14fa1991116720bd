"""The command `hf-ngsan configs`: the training configs that the package brings."""

import argparse

from ..io.packaged import copy_config, describe_config, packaged_config, packaged_configs
from .arguments import user_path

SUMMARY = """List the packaged training configs, or copy one to change it.

hf-ngsan train --config NAME takes them."""
EPILOG = """examples:
  hf-ngsan configs
  hf-ngsan configs --copy ngsan/g_san --output mine.yaml"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--copy", metavar="NAME", help="copy this config, with its comments")
    add("--output", type=user_path, metavar="FILE.yaml", help="file of the copy (the last part of NAME)")
    add("--overwrite", action="store_true", help="replace a file that exists")


def run(options: argparse.Namespace) -> None:
    if options.copy is not None:
        output = options.output or packaged_config(options.copy).name
        copy_config(options.copy, output, overwrite=options.overwrite)
        print(f"Copied {options.copy} to {output}; hf-ngsan train --config {output} trains by it.")
        return
    configs = packaged_configs()
    width = max(map(len, configs), default=0)
    for name, file in configs.items():
        print(f"{name:<{width}}  {describe_config(file)}")
