"""Writes checkpoints for the Hub into a new folder, checks them, and uploads them in one commit with a tag."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, ModelCard, get_token
from huggingface_hub.errors import HTTPError
from huggingface_hub.utils import validate_repo_id
from transformers import PreTrainedModel

from ..exporting.onnx_folder import copy_graphs
from ..io.files import sha256, write_text_atomically
from ..io.folders import check_new_folder, write_folder_atomically
from ..io.packaged import check_licence
from ..loading.hub import needs_the_package, save_for_hub
from ..loading.models import ModelFolderError, find_model_folder, load_model
from ..training.output_folder import TRAINING_CONFIG
from .cards import (
    CARD,
    CardFacts,
    collect_card_facts,
    weight_files_checksum,
    write_card,
    write_evaluations,
)

HANDLER_CODE = Path(__file__).with_name("endpoint_handler.py")
"""Source of `handler.py` of a captioner, for the Inference Endpoints of the Hub."""
OF_THE_HUB = {".gitattributes", "README.md"}  # files of a new repository; they do not count as foreign
SECONDS_TO_LOAD = 600
LOAD = """
import json, os, sys
folder, blocked = sys.argv[1:]
if blocked:
    sys.modules[blocked] = None  # importing it raises an ImportError
import transformers
with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
    config = json.load(file)
names = {reference.split(".")[-1]: auto for auto, reference in config.get("auto_map", {}).items()}
auto = config["architectures"][0]  # a class of transformers, or one in the folder
auto = names.get(auto, auto)
loader = getattr(transformers, auto)
model, report = loader.from_pretrained(folder, output_loading_info=True, trust_remote_code=True)
if report["missing_keys"]:
    raise ValueError(f"{len(report['missing_keys'])} weights are missing")
if {"processor_config.json", "preprocessor_config.json", "tokenizer_config.json"} & {*os.listdir(folder)}:
    transformers.AutoProcessor.from_pretrained(folder, trust_remote_code=True)  # or a tokenizer or image processor
"""


class UploadError(OSError):
    """An upload that failed or was refused by the Hub; the message names the repository and the reason."""


def push_to_hub(
    model: PreTrainedModel,
    processor: Any,
    repo_id: str,
    *,
    max_shard_size: int | str = "50GB",
    tags: Sequence[str] = (),
    **options: Any,
) -> CommitInfo:
    """Uploads a model, its processor, the code of both and a model card, in one commit.

    The card describes the configuration of the model; the card of [`push`] also has its training and evaluation.

    Args:
        model, processor: see [`save_for_hub`].
        repo_id: `user/name`, or `name` for the user of the token; created if absent.
        max_shard_size: maximum size of a file of weights, as in transformers.
        tags: further tags of the card.
        options: options of [`~hf_ngsan.sharing.upload_checkpoint`]: `private`, `token`, `revision`, `create_pr`,
            `commit_message` and others as in huggingface_hub, and `overwrite`.

    Raises:
        ValueError: see [`save_for_hub`]; or `repo_id` is not the name of a repository.
        UploadError: no token, no write permission, a repository with other files, or the Hub cannot be reached.
    """
    repo_id = full_name(repo_id, options.get("token"))
    with TemporaryDirectory() as folder:
        write_checkpoint(model, processor, folder, repo_id, tags=tags, max_shard_size=max_shard_size)
        return upload_checkpoint(folder, repo_id, **options)


def push(
    name: str,
    repo_id: str,
    folder: str | Path | None = None,
    *,
    runs: Sequence[str] = (),
    license: str | None = None,
    license_name: str | None = None,
    **options: Any,
) -> CommitInfo | None:
    """Uploads a model by its name; the model card has its training and its recorded scores.

    Args:
        name: folder of a model or a training run, or name of a packaged model.
        repo_id: see [`push_to_hub`].
        folder: a new folder; if given, the files are written there and nothing is uploaded.
        runs: training runs with other seeds, for means and standard deviations.
        license: licence of the weights, as an identifier of the Hub such as `"cc-by-4.0"`; by default, that of their
            sources.
        license_name: name of the licence if its identifier is `"other"`.
        options: `private` and `overwrite`, see [`upload_checkpoint`].

    Raises:
        ValueError, UploadError: see [`push_to_hub`]; or a licence that the Hub does not list, or an argument that would
            change nothing in a card that is there.
    """
    validate_repo_id(repo_id)
    check_licence(license, license_name)
    if folder is not None:
        check_new_folder(Path(folder))
    repo_id = full_name(repo_id) if folder is None else repo_id
    # before the model is loaded, since it refuses links to files elsewhere
    facts = collect_card_facts(name, runs, license=license, license_name=license_name)
    options_of_card = {"license": license, "runs": runs}
    unused_options = [f"--{option}" for option, value in options_of_card.items() if value]
    if facts.own_card is not None and unused_options:
        raise ValueError(f"{name} has a README.md; edit it instead of using {', '.join(unused_options)}.")
    model, processor = load_model(name)

    def write(target: Path) -> None:
        source = Path(find_model_folder(name))
        write_checkpoint(model, processor, target, repo_id, facts=facts, source=source)
        check_checkpoint(target)

    if folder is not None:
        write_folder_atomically(Path(folder), write, manifest=False)
        return None
    with TemporaryDirectory() as target:
        write(Path(target))
        return upload_checkpoint(target, repo_id, **options)


def full_name(repo_id: str, token: bool | str | None = None) -> str:
    """Returns `user/name` of a repository; a name without a user gets the user of the token."""
    validate_repo_id(repo_id)
    if token is False or not (token if isinstance(token, str) else get_token()):
        raise UploadError(f"{repo_id} cannot be written without a token; log in with hf auth login, or set HF_TOKEN.")
    if "/" in repo_id:
        return repo_id
    with as_upload_errors(repo_id):
        return f"{HfApi(token=token).whoami()['name']}/{repo_id}"


@contextmanager
def as_upload_errors(repo_id: str) -> Iterator[None]:
    """Turns errors of the Hub and of the connection into an [`UploadError`]."""
    try:
        yield
    except (HTTPError, RuntimeError) as error:  # huggingface_hub raises a RuntimeError for large files
        reason = " ".join(str(error).split())[:500].rstrip(".")
        remedy = "check that the token has write permission, and run the command again"
        raise UploadError(f"{repo_id} was not uploaded ({reason}); {remedy}.") from error


def write_checkpoint(
    model: PreTrainedModel,
    processor: Any,
    folder: str | Path,
    repo_id: str,
    *,
    facts: CardFacts | None = None,
    tags: Sequence[str] = (),
    max_shard_size: int | str = "50GB",
    source: Path | None = None,
) -> None:
    """Writes the files of a repository into a new folder: model, processor, the code of both, and the card.

    `source` is the folder that the unchanged model was loaded from; its ONNX graphs are copied if they are current.
    """
    folder = Path(folder)
    save_for_hub(model, processor, folder, max_shard_size=max_shard_size)
    if "image-to-text" in getattr(model.config, "remote_pipelines", {}):
        shutil.copyfile(HANDLER_CODE, folder / "handler.py")
    if source is not None:
        copy_graphs(source, folder)
    facts = facts or CardFacts()
    write_facts(folder, facts)
    write_card(model, folder, repo_id, checkpoint_tag(folder), facts, tags)


def write_facts(folder: Path, facts: CardFacts) -> None:
    """Writes the files that the card links to: training config and evaluations."""
    if facts.training_config is not None:
        text = yaml.safe_dump(dict(facts.training_config), sort_keys=False)
        write_text_atomically(folder / TRAINING_CONFIG, text)
    if facts.evaluations:
        weights = weight_files_checksum(folder)  # the same weights may now be in other files
        write_evaluations(folder, [replace(evaluation, weights=weights) for evaluation in facts.evaluations])


def files_of(folder: Path) -> list[str]:
    """Returns the names of the files in a folder, without hidden files."""
    names = glob("**", root_dir=folder, recursive=True)
    return sorted(Path(name).as_posix() for name in names if (folder / name).is_file())


def checkpoint_tag(folder: str | Path) -> str:
    """Returns the tag of a checkpoint: a checksum of all files except the card, because the card has the tag."""
    folder = Path(folder)
    digest = hashlib.sha256()
    for name in files_of(folder):
        if name != CARD:
            digest.update(f"{name}\0{sha256(folder / name)}\n".encode())
    return f"checkpoint-{digest.hexdigest()[:12]}"


def check_checkpoint(folder: str | Path) -> None:
    """Raises a ModelFolderError unless a folder of [`write_checkpoint`] loads in a process without this package.

    The code in the folder is run; code of an architecture of another package may import this package.
    """
    folder = Path(folder).resolve()
    ModelCard((folder / CARD).read_text(encoding="utf-8"))
    with TemporaryDirectory() as modules:
        settings = {"HF_MODULES_CACHE": modules, "HF_HUB_OFFLINE": "1", "HF_HUB_VERBOSITY": "error"}
        process = subprocess.run(
            [sys.executable, "-c", LOAD, str(folder), "" if needs_the_package(folder) else "hf_ngsan"],
            cwd=modules,
            env={name: value for name, value in os.environ.items() if name != "HF_TOKEN"} | settings,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_TO_LOAD,
        )
    if process.returncode != 0:
        reason = (process.stderr.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
        raise ModelFolderError(f"{folder} cannot be loaded in a new process ({reason[:500]}).")


def upload_checkpoint(
    folder: str | Path,
    repo_id: str,
    *,
    private: bool | None = None,
    token: bool | str | None = None,
    overwrite: bool = False,
    revision: str | None = None,
    **options: Any,
) -> CommitInfo:
    """Uploads a folder of [`write_checkpoint`] in one commit, with the tag that its card has.

    A second call after a failure uploads only the missing files.

    Args:
        folder: folder of the checkpoint.
        repo_id: `user/name`; created if absent.
        private: whether a new repository is private.
        token: as in transformers.
        overwrite: delete other files of the repository in the same commit; otherwise they are an error.
        revision: branch, created if absent; the main branch if `None`.
        options: options of `HfApi.create_commit`, such as `create_pr` and `commit_message`.

    Raises:
        UploadError: see [`push_to_hub`]; the repository is unchanged.
    """
    folder, api = Path(folder), HfApi(token=token)
    names = files_of(folder)
    with as_upload_errors(repo_id):
        api.create_repo(repo_id, private=private, exist_ok=True)
        if revision is not None and not revision.startswith("refs/"):
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        others = sorted({*api.list_repo_files(repo_id, revision=revision)} - {*names} - OF_THE_HUB)
        if others and not overwrite:
            problem = f"{repo_id} has {len(others)} files that are not from this checkpoint, such as {others[0]}"
            raise UploadError(f"{problem}; choose another repository, or delete them with --overwrite.")
        info = api.create_commit(
            repo_id,
            [*(CommitOperationAdd(name, folder / name) for name in names), *map(CommitOperationDelete, others)],
            revision=revision,
            **{"commit_message": "Upload model, processor, code and card", **options},
        )
        api.create_tag(repo_id, tag=checkpoint_tag(folder), revision=info.oid, exist_ok=True)
    return info
