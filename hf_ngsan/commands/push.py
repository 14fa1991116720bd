"""The command `hf-ngsan push`: uploads a model with processor, code and model card to the Hub."""

import argparse
from pathlib import Path

from .arguments import MODEL, pick, user_path

SUMMARY = """Upload a model to the Hub with its processor, code and model card.

All files are uploaded in one commit."""
EPILOG = """examples:
  hf-ngsan push runs/scenes user/captioner-of-scenes --dry-run folder
  hf-ngsan push runs/scenes user/captioner-of-scenes --private --license cc-by-4.0

Log in with hf auth login, or set HF_TOKEN. The model card has the scores of hf-ngsan evaluate --record. A README.md in
DIR replaces the card; --license and --runs are then not allowed. A fine-tuned model keeps the licence of the model that
it started from."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=user_path, metavar="DIR", help=MODEL)
    add("repo_id", metavar="REPO_ID", help="repository, such as user/name; it is created if it does not exist")
    add("--private", action="store_true", help="create the repository as a private one")
    dry_run = "write and check the files in a new folder, without an upload (default: the name of the repository)"
    add("--dry-run", nargs="?", const="", type=user_path, metavar="FOLDER", help=dry_run)
    add("--overwrite", action="store_true", help="also delete all other files of the repository")
    runs = "training runs with other seeds; the card then shows the mean and standard deviation of all runs"
    add("--runs", nargs="+", default=[], type=user_path, metavar="RUN", help=runs)
    licence = "licence of the weights, as the Hub writes it, such as cc-by-4.0 (default: the licence of their sources)"
    add("--license", metavar="ID", help=licence)
    add("--license-name", metavar="NAME", help="name of the licence for --license other")


def run(options: argparse.Namespace) -> None:
    folder = None if options.dry_run is None else Path(options.dry_run or options.repo_id.split("/")[-1])
    from ..io.packaged import check_licence

    check_licence(options.license, options.license_name)
    from ..sharing import push

    arguments = pick(options, "runs", "license", "license_name", "overwrite")
    commit = push(options.model, options.repo_id, folder, private=options.private or None, **arguments)
    if commit is not None:
        print(f"{options.repo_id} was uploaded: {commit.commit_url}")
    elif folder is not None:
        sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
        size = f"{len(sizes)} files, {sum(sizes) / 1e6:.1f} MB"
        print(f"{folder} has the files that would be uploaded to {options.repo_id}: {size}.")
