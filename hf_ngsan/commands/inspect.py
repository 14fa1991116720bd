"""The command `hf-ngsan inspect`: prints the kind, the contents and the first problem of a file or folder."""

import argparse

from ..data.formats import FEATURE_FORMATS
from ..io.packaged import folder_of_packaged
from .arguments import check_files, user_path

SUMMARY = """Describe a file or folder and its first problem.

The file or folder can hold images, videos, features, annotations, a model, a training run or a search index."""
EPILOG = """examples:
  hf-ngsan inspect trainval_36.tsv
  hf-ngsan inspect runs/scenes
  hf-ngsan inspect ngsan-photos --self-test

The command reads all data and compares files with their checksums; the exit code is 1 if there is a problem."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("path", type=user_path, metavar="PATH", help="file, folder or packaged model")
    add("--from", dest="source_format", choices=list(FEATURE_FORMATS), help="format of features (default: detected)")
    test = "compare the outputs of a model with the recorded ones; the exit code is 1 if they differ"
    add("--self-test", action="store_true", help=test)


def run(options: argparse.Namespace) -> int:
    if options.self_test:
        from ..loading.hub import run_self_test
        from ..loading.models import find_model_folder, load_model

        folder = find_model_folder(options.path)
        result = run_self_test(*load_model(folder), folder)
        print(f"{folder}: {result}")
        return 0 if result.passed else 1
    path = folder_of_packaged(options.path)
    check_files(path)
    from ..tasks.inspection import PROBLEM, inspect

    kind, *lines = inspect(path, source_format=options.source_format)
    print(f"{path}: {kind}", *lines, sep="\n  ")
    return int(any(line.startswith(PROBLEM) for line in lines))
