"""The command `hf-ngsan export`: exports a captioner or dual encoder to ONNX."""

import argparse
from pathlib import Path

from ..io.packaged import find_model_folder
from .arguments import add_shared, pick

SUMMARY = """Export a captioner or a dual encoder to ONNX.

The exported captioner needs neither this package nor torch."""
EPILOG = """examples:
  hf-ngsan export --model runs/scenes --output exported --check
  hf-ngsan export --model captioner --output exported --check --data images:photos
  hf-ngsan export --model DUAL_ENCODER --output exported
  hf-ngsan export --model captioner
  python exported/captioner.py photo.jpg --num-beams 3

An exported captioner includes captioner.py, a program that needs only NumPy and ONNX Runtime. Other commands accept the
folder of an exported dual encoder in place of the model. Without --output, the graphs are written into onnx/ in the
model's folder; hf-ngsan caption, search, index and extract then run them instead of PyTorch. The command needs
pip install "hf-ngsan[export]"."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model", "--split", "--limit")
    add_shared(parser, "--output", metavar="DIR", help="new folder (default: onnx/ in the folder of the model)")
    check = "caption images with the model and the exported files; the exit code is 1 if they differ"
    parser.add_argument("--check", action="store_true", help=check)
    add_shared(parser, "--data", required=False, help="dataset for --check (default: the dataset of the training)")


def run(options: argparse.Namespace) -> int:
    from ..exporting import MAX_DIFFERENCE
    from ..sharing.export import export_model

    comparison = export_model(options.model, **pick(options, "output", "check", "data", "split", "limit"))
    if options.output is None:
        print(f"{Path(find_model_folder(options.model)) / 'onnx'}: hf-ngsan commands use these graphs now.")
    elif (Path(options.output) / "captioner.py").is_file():
        print(f"{options.output} captions without this package: python {Path(options.output) / 'captioner.py'} --help")
    else:
        print(f"{options.output} embeds images and texts as the model does.")
        print(f"Index images with it: hf-ngsan index --model {options.output} --images FOLDER --output INDEX")
    if comparison is None:
        return 0
    images, others, difference = comparison
    for beams, number in others.items():
        differ = f"{number} captions differ" if number else "the same captions"
        print(f"{images} images, {beams} beam{'s' if beams > 1 else ''}: {differ}.")
    print(f"Log-probabilities differ by {difference:.1e} at most.")
    return 0 if difference <= MAX_DIFFERENCE and not any(others.values()) else 1
