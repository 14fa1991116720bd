"""The command `hf-ngsan push`: an upload of a model with processor, code and card to the Hub."""

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ..io.packaged import find_model_folder
from .arguments import MODEL, check_new_folder, user_path

SUMMARY = """Upload a model to the Hub, with processor, code and card.

All files arrive in one commit."""
EPILOG = """examples:
  hf-ngsan push runs/scenes user/captioner-of-scenes --dry-run folder
  hf-ngsan push runs/scenes user/captioner-of-scenes --private --license cc-by-4.0

Log in with hf auth login, or set HF_TOKEN. The card has the scores of hf-ngsan evaluate --record. A README.md in DIR
replaces it and excludes --license, --runs and --examples. A model that began as others keeps their licence."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("model", type=user_path, metavar="DIR", help=MODEL)
    add("repo_id", metavar="REPO_ID", help="repository, such as user/name; created if absent")
    add("--private", action="store_true", help="make a new repository private")
    dry_run = "upload nothing: write and check the checkpoint in a new folder (named as the repository)"
    add("--dry-run", nargs="?", const="", type=user_path, metavar="FOLDER", help=dry_run)
    add("--overwrite", action="store_true", help="delete other files of the repository in the same commit")
    runs = "training runs with other seeds; the card shows mean and standard deviation"
    add("--runs", nargs="+", default=[], type=user_path, metavar="RUN", help=runs)
    add("--examples", metavar="SPEC", help="dataset; the card shows its first test images with their captions")
    add("--license", metavar="ID", help="licence of the weights, such as cc-by-4.0 (that of their sources)")


def run(options: argparse.Namespace) -> None:
    from huggingface_hub.utils import disable_progress_bars, validate_repo_id

    from ..io.folders import write_folder_atomically
    from ..loading.models import load_model
    from ..sharing import check_checkpoint, upload_checkpoint, write_checkpoint
    from ..sharing.cards import collect_card_facts, write_examples
    from ..sharing.upload import files_of, full_name

    validate_repo_id(options.repo_id)
    target = None if options.dry_run is None else Path(options.dry_run or options.repo_id.split("/")[-1])
    if target is not None:
        check_new_folder(str(target), "--dry-run")
    repo_id = options.repo_id if target is not None else full_name(options.repo_id)
    # before the model is loaded, since it refuses links to files elsewhere
    facts = collect_card_facts(options.model, options.runs, license=options.license)
    given = [f"--{name}" for name in ("license", "runs", "examples") if getattr(options, name)]
    if facts.own_card is not None and given:
        raise ValueError(f"{options.model} has a README.md, uploaded unchanged: edit it, and omit {', '.join(given)}.")
    model, processor = load_model(options.model)

    def write(folder: Path) -> None:
        examples = {}
        if options.examples is not None:
            examples = write_examples(model, processor, options.examples, folder)
        source = Path(find_model_folder(options.model))
        write_checkpoint(model, processor, folder, repo_id, facts=replace(facts, examples=examples), source=source)
        check_checkpoint(folder)

    if target is not None:
        write_folder_atomically(target, write, manifest=False)
        files = files_of(target)
        size = sum((target / name).stat().st_size for name in files) / 1e6
        print(f"{target} holds what would be uploaded to {repo_id}: {len(files)} files, {size:.1f} MB.")
        return
    if not sys.stderr.isatty():
        disable_progress_bars()
    with TemporaryDirectory() as folder:
        write(Path(folder))
        commit = upload_checkpoint(folder, repo_id, private=options.private or None, overwrite=options.overwrite)
    print(f"{repo_id} is uploaded: {commit.commit_url}")
