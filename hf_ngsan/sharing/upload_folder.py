"""The folder of a checkpoint for the Hub: its files, its tag, and its checks."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from transformers import PreTrainedModel

from ..exporting.onnx_folder import copy_graphs
from ..io.files import TEMPORARY_PREFIX, sha256, write_text_atomically
from ..io.messages import one_sentence
from ..loading.hub import HANDLER, SETTINGS, foreign_references, needs_the_package, own_code, save_for_hub
from ..loading.models import ModelFolderError, without_progress_bars
from ..training.output_folder import TRAINING_CONFIG
from ..visualization import MissingPlotsError, save_figure
from ..visualization.plots import plot_training_curve
from .cards import CARD, TRAINING_CURVE, CardFacts, check_card, write_card, write_eval_results
from .evaluations import weights_checksum, write_evaluations

HANDLER_CODE = Path(__file__).with_name("endpoint_handler.py")
"""Source of `handler.py` of a captioner."""
LOADED = (".json", ".safetensors", ".py", ".txt", ".model", ".jinja")
"""Suffixes of the files of models, tokenizers and processors."""
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
auto = config["architectures"][0]  # a class of transformers itself, or one that comes with the folder
auto = names.get(auto, auto)
if auto == "AutoBackbone":
    from transformers.dynamic_module_utils import get_class_from_dynamic_module
    loader, options = get_class_from_dynamic_module(config["auto_map"][auto], folder), {}
else:
    loader, options = getattr(transformers, auto), {"trust_remote_code": True}
model, report = loader.from_pretrained(folder, output_loading_info=True, **options)
if report["missing_keys"]:
    raise ValueError(f"{len(report['missing_keys'])} weights are missing")
for file, name in {
    "processor_config.json": "AutoProcessor",
    "preprocessor_config.json": "AutoImageProcessor",
    "tokenizer_config.json": "AutoTokenizer",
}.items():
    if os.path.isfile(os.path.join(folder, file)):
        getattr(transformers, name).from_pretrained(folder, trust_remote_code=True)
        break
"""


def write_checkpoint(
    model: PreTrainedModel,
    processor: Any,
    folder: str | Path,
    repo_id: str,
    *,
    facts: CardFacts | None = None,
    tags: Sequence[str] = (),
    max_shard_size: int | str = "50GB",
    is_tagged: bool = True,
    source: Path | None = None,
) -> None:
    """Writes the files of a repository of the Hub: model, processor, the code of both, and the card.

    Args:
        model, processor: see [`save_for_hub`].
        folder: an empty or new folder.
        repo_id: name of the repository, for the card.
        facts: facts about the model besides its configuration, for the card.
        tags: further tags of the card.
        max_shard_size: maximal size of a file of weights, as in transformers.
        is_tagged: whether the card names the tag of the checkpoint, which uploads to branches make.
        source: folder that the model was loaded from, unchanged; current graphs in its `onnx/` go along.
    """
    folder = Path(folder)
    with without_progress_bars():
        save_for_hub(model, processor, folder, max_shard_size=max_shard_size)
    if "image-to-text" in getattr(model.config, "remote_pipelines", {}):
        shutil.copyfile(HANDLER_CODE, folder / HANDLER)
    if source is not None:
        copy_graphs(source, folder)
    facts = facts or CardFacts()
    write_facts(folder, facts)
    write_card(model, folder, repo_id, checkpoint_tag(folder) if is_tagged else None, facts, tags)


def write_facts(folder: Path, facts: CardFacts) -> None:
    """Writes the files that the card refers to: training config, training curve and evaluations."""
    if facts.training_config is not None:
        text = yaml.safe_dump(dict(facts.training_config), sort_keys=False)
        write_text_atomically(folder / TRAINING_CONFIG, text)
    if facts.history:
        score = (facts.training_config or {}).get("evaluation", {}).get("metric")
        with suppress(MissingPlotsError):
            save_figure(plot_training_curve(facts.history, score), folder / TRAINING_CURVE)
    if facts.evaluations:
        weights = weights_checksum(folder)  # the same weights may be in other files now
        write_evaluations(folder, [replace(one, weights=weights) for one in facts.evaluations])
        write_eval_results(folder, facts)


def files_of(folder: Path) -> list[str]:
    """Returns all files in a folder, recursively and relative to it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def checkpoint_tag(folder: str | Path) -> str:
    """Returns the name of a checkpoint: a checksum of all its files but the card, which has this name."""
    folder = Path(folder)
    digest = hashlib.sha256()
    for name in files_of(folder):
        if name != CARD:
            digest.update(f"{name}\0{sha256(folder / name)}\n".encode())
    return f"checkpoint-{digest.hexdigest()[:12]}"


def check_checkpoint(folder: str | Path) -> None:
    """Checks a folder before its upload: its files, its card, and that it loads in another process.

    That process runs only code of this package, which [`save_for_hub`] wrote, and sees only the files to be loaded.
    This package is hidden from it, unless the code of an architecture of another package imports it.

    Raises:
        ModelFolderError: the folder is incomplete, does not load, or has or refers to foreign code.
        ValueError: the Hub could not read the card.
    """
    folder = Path(folder)
    for name in files_of(folder):
        if (folder / name).is_symlink() or Path(name).name.startswith(TEMPORARY_PREFIX):
            raise ModelFolderError(f"{folder}: {name} is a link or was not written completely; write the folder again.")
    check_card(folder)
    check_code(folder)
    with TemporaryDirectory() as place:
        copy, modules = Path(place, "checkpoint"), Path(place, "modules")
        copy.mkdir()
        modules.mkdir()
        for file in folder.iterdir():
            if file.is_file() and file.suffix in LOADED:
                try:
                    os.link(file, copy / file.name)
                except OSError:  # another disk, or one without links
                    shutil.copyfile(file, copy / file.name)
        settings = {"HF_MODULES_CACHE": str(modules), "HF_HUB_OFFLINE": "1", "HF_HUB_VERBOSITY": "error"}
        environment = {name: value for name, value in os.environ.items() if name != "HF_TOKEN"} | settings
        try:
            process = subprocess.run(
                [sys.executable, "-c", LOAD, str(copy), "" if needs_the_package(folder) else "hf_ngsan"],
                cwd=modules,
                env=environment,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=SECONDS_TO_LOAD,
            )
        except subprocess.TimeoutExpired as error:
            raise ModelFolderError(f"{folder} does not load within {SECONDS_TO_LOAD} seconds.") from error
    if process.returncode != 0:
        lines = process.stderr.strip().splitlines() or [f"exit code {process.returncode}"]
        reason = one_sentence(ValueError(lines[-1]))
        raise ModelFolderError(f"{folder} does not load in another process ({reason}).")


def check_code(folder: Path) -> None:
    """Raises a ModelFolderError unless all code in a folder, and all that it refers to, is this package's."""
    code = own_code(folder)
    for name in files_of(folder):
        is_handler = name == HANDLER and (folder / name).read_bytes() == HANDLER_CODE.read_bytes()
        if name.endswith(".py") and name not in code and not is_handler:
            raise ModelFolderError(
                f"{folder}: {name} is not code of hf_ngsan, or of a package that was imported here; delete it, or "
                "write the folder again."
            )
    for file in sorted(folder.glob(SETTINGS)):
        try:
            settings = json.loads(file.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            raise ModelFolderError(f"{folder}: {file.name} cannot be read; write the folder again.") from None
        for mapping, key in foreign_references(settings, code):
            raise ModelFolderError(
                f"{folder}: {file.name} refers to code that is not in this folder, or not that of hf_ngsan ({key}: "
                f"{mapping[key]!r:.200}); write the folder again."
            )
