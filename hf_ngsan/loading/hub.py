"""Saves checkpoints with their code, so that transformers loads them without this package, and with a self-test.

A self-test is a record of a model's outputs for random inputs; it shows whether other versions of libraries change
them. The outputs are log-probabilities of the tokens of a text in `generate()`, or else some numbers of the outputs.
"""

import copy
import inspect
import json
import logging
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from transformers import BaseImageProcessor, LogitsProcessor, PreTrainedModel, PreTrainedTokenizerBase, ProcessorMixin

from ..exporting.onnx_folder import remove_old_graphs
from ..io.files import write_text_atomically
from ..io.messages import one_sentence
from ..io.packaged import INITIALIZED_FROM
from ..models.attention_maps import evaluation_mode
from ..models.configuration_hub import REFERENCES_TO_CODE
from ..models.modeling_base import registered_for_auto_classes
from ..models.modeling_vision import cell_boxes
from .models import is_guest, save_model, task_of
from .provenance import installed_versions

logger = logging.getLogger(__name__)

MODELS = Path(__file__).parent.parent / "models"
PACKAGE_IMPORT = re.compile(r"^\s*(from|import) hf_ngsan\b", re.MULTILINE)
MODULE = re.compile(r'"([^"]+)\.[^".]*"')
"""The module in a reference to code, such as "modeling_x.XModel", in JSON."""
SELF_TEST = "self_test.json"
TOLERANCE = 1e-4
SEED = 0
LIBRARIES = ("hf-ngsan", "transformers", "torch", "tokenizers", "numpy", "pillow")
GRID = 3
IMAGE = (96, 128)
NUM_WORDS = 6
GENERATION: dict[str, Any] = {"num_beams": 1, "do_sample": False, "min_new_tokens": 8, "max_new_tokens": 8}
"""Eight tokens, even if a model would stop immediately, because only later tokens use the cache."""
NUM_VALUES = 16


def save_for_hub(
    model: PreTrainedModel,
    processor: ProcessorMixin | BaseImageProcessor | PreTrainedTokenizerBase | None,
    directory: str | Path,
    *,
    max_shard_size: int | str = "50GB",
) -> Path:
    """Saves a model, its processor and the code of both for upload, with a record for `inspect --self-test`.

    A process without this package can then load the folder, or the Hub repository made from it, with
    `AutoModel.from_pretrained(directory, trust_remote_code=True)` or
    `pipeline("image-to-text", model=directory, trust_remote_code=True)`; with this package imported, the argument is
    unnecessary. The licences of the models that it is derived from are saved too. ONNX graphs of other weights in the
    directory are removed, and so are references to other code from the original checkpoints.

    Args:
        model: a model of this package, of a registered model type, or of transformers.
        processor: its processor; an image processor, a tokenizer or `None` for an architecture without processor.
        directory: folder to write; created if absent.
        max_shard_size: maximum size of a file of weights, as in transformers.

    Returns:
        The directory.

    Raises:
        ValueError: a model or processor of another package, a part of a model, or a missing processor.
    """
    classes = getattr(model.config, "remote_classes", {})
    auto_classes: dict[type, str] = {}
    if not is_of_transformers(model):  # transformers has the code of the others
        auto_classes[type(model.config)] = "AutoConfig"
        has_processor = {"AutoProcessor", "AutoTokenizer"} & classes.keys()
        needs_code = has_processor or not isinstance(processor, PreTrainedTokenizerBase | None)
        for part in (model, processor) if needs_code else (model,):
            name = type(part).__name__
            autos = [auto for auto, location in classes.items() if location.split(".")[-1] == name]
            if not autos:
                raise ValueError(f"save_for_hub() saves a model of this package and its processor; {name} is neither.")
            auto_classes[type(part)] = autos[0]
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    with registered_for_auto_classes(auto_classes):
        save_model(model, processor, directory, max_shard_size=max_shard_size)
    homes = {MODELS, Path(inspect.getfile(type(model))).parent} if auto_classes else set()
    modules = {file.stem for home in homes for file in home.glob("*.py")}
    for file in [*directory.glob("config.json"), *directory.glob("[!.]*config.json")]:
        text = file.read_text(encoding="utf-8")
        settings = json.loads(text, object_hook=lambda mapping: without_foreign_code(mapping, modules))
        if settings != json.loads(text):
            write_text_atomically(file, json.dumps(settings, indent=2) + "\n")
    write_self_test(model, processor, directory)
    remove_old_graphs(directory)
    return directory


def is_of_transformers(model: PreTrainedModel) -> bool:
    """Returns whether a model is a captioner or dual encoder of transformers; these need no saved code."""
    has_task = is_guest(model.config) and task_of(model.config) is not None
    return has_task and type(model).__module__.startswith("transformers.")


def needs_the_package(folder: Path) -> bool:
    """Returns whether the code in a folder imports this package; saved code of this package does not."""
    return any(PACKAGE_IMPORT.search(file.read_text("utf-8", errors="replace")) for file in folder.glob("[!.]*.py"))


def without_foreign_code(mapping: dict, modules: set[str]) -> dict:
    """Returns a mapping of settings without references to code of other modules."""
    kept: dict[str, Any] = {}
    for name, value in mapping.items():
        if name in INITIALIZED_FROM and os.path.isabs(str(value)):
            kept[name] = Path(value).name  # without the folder names of this machine
        elif name not in REFERENCES_TO_CODE:
            kept[name] = value
        elif isinstance(value, dict):
            named = {kind: {*MODULE.findall(json.dumps(reference))} for kind, reference in value.items()}
            kept[name] = {kind: value[kind] for kind, used in named.items() if used and used <= modules}
    return kept


class SelfTestResult(NamedTuple):
    """The largest difference from the recorded numbers, and the changes of library versions since then."""

    difference: float
    changes: dict[str, str]

    @property
    def passed(self) -> bool:
        return self.difference <= TOLERANCE

    def __str__(self) -> str:
        words = f"computes the recorded outputs (largest difference {self.difference:.1e}, at most {TOLERANCE:.0e})"
        changes = ", ".join(f"{name} {change}" for name, change in self.changes.items()) or "these versions"
        return words if self.passed else f"no longer {words}; recorded with {changes}"


def write_self_test(model: PreTrainedModel, processor: Any, folder: str | Path) -> None:
    """Writes the record of a model into its folder, or warns that the model needs other inputs."""
    try:
        outputs = outputs_of(model, processor, SEED, None)
    except Exception as error:  # any model may raise any exception
        logger.warning("%s has no %s: %s", folder, SELF_TEST, one_sentence(error))
        return
    record = {"seed": SEED, "versions": installed_versions(LIBRARIES), **outputs}
    write_text_atomically(Path(folder) / SELF_TEST, json.dumps(record) + "\n")


def run_self_test(model: PreTrainedModel, processor: Any, folder: str | Path) -> SelfTestResult:
    """Compares outputs of a model with the record in its folder."""
    record = json.loads(Path(folder, SELF_TEST).read_text(encoding="utf-8"))
    outputs = outputs_of(model, processor, record["seed"], record.get("token_ids"))
    differences = [np.abs(np.subtract(outputs[name], record[name])).max() for name in outputs]
    here = installed_versions(LIBRARIES)
    changes = {
        name: f"{then} (here {here.get(name, 'none')})"
        for name, then in sorted(record["versions"].items())
        if then != here.get(name)
    }
    return SelfTestResult(float(np.max(differences)), changes)  # NaN if one difference is NaN


def drawn_inputs(model: Any, processor: Any, seed: int) -> dict[str, torch.Tensor]:
    """Draws random inputs for a model: an image, or features with boxes, and words."""
    random = np.random.RandomState(seed)  # NumPy guarantees the same numbers in every version
    named, config = inspect.signature(model.forward).parameters, model.config
    inputs: dict[str, torch.Tensor] = {}
    if "visual_features" in named and getattr(config, "vision_config", None) is None:
        rows, columns = getattr(config, "grid_size", None) or (GRID, GRID)
        features = random.uniform(0, 1, (1, rows * columns, config.visual_feature_size))
        inputs["visual_features"] = torch.tensor(features, dtype=torch.float32)
        if "visual_boxes" in named:
            inputs["visual_boxes"] = cell_boxes(rows, columns)[None]
        if "attention_mask" in named and named["attention_mask"].default is inspect.Parameter.empty:
            inputs["attention_mask"] = torch.ones(1, rows * columns, dtype=torch.long)
    elif "pixel_values" in named:
        image_processor = getattr(processor, "image_processor", processor)
        if image_processor is None:
            inputs["pixel_values"] = torch.tensor(random.uniform(-1, 1, (1, 3, *IMAGE)), dtype=torch.float32)
        else:
            image = Image.fromarray(random.randint(0, 256, (*IMAGE, 3)).astype(np.uint8))
            inputs |= image_processor(images=[image], return_tensors="pt")
    text_inputs = {"input_ids"} if model.can_generate() else {"input_ids", "decoder_input_ids"}
    for name in sorted(text_inputs & named.keys()):
        ids = np.arange(config.get_text_config().vocab_size)
        words = np.setdiff1d(ids, getattr(config, "pad_token_id", None) or 0)
        inputs[name] = torch.tensor(words[random.randint(0, len(words), (1, NUM_WORDS))])
    return inputs


@torch.inference_mode()
def outputs_of(model: Any, processor: Any, seed: int, token_ids: list[int] | None) -> dict[str, list]:
    """Returns outputs of a model by name, in float32 on the CPU, for a recorded text or else a generated one."""
    if not {(weight.dtype, weight.device.type) for weight in model.parameters()} <= {(torch.float32, "cpu")}:
        model = copy.deepcopy(model).float().cpu()
    inputs = drawn_inputs(model, processor, seed)
    with evaluation_mode(model):
        if not model.can_generate():
            outputs = model(**inputs).items()
            last = {name: value[-1] if isinstance(value, tuple) else value for name, value in outputs}
            flat = {name: value.flatten() for name, value in last.items() if torch.is_tensor(value)}
            return {
                name: value[torch.linspace(0, len(value) - 1, NUM_VALUES).long()].tolist()
                for name, value in flat.items()
                if value.is_floating_point() and len(value)
            }
        if token_ids is None:
            token_ids = model.generate(**inputs, **GENERATION)[0, 1:].tolist()
        forced = GivenText(token_ids)
        model.generate(**inputs, **GENERATION, logits_processor=[forced])
    return {"token_ids": token_ids, "log_probabilities": forced.log_probabilities}


class GivenText(LogitsProcessor):
    """Forces `generate()` to write a given text, and keeps the log-probability of each token."""

    def __init__(self, token_ids: list[int]):
        self.token_ids = token_ids
        self.log_probabilities: list[float] = []

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        token = self.token_ids[len(self.log_probabilities)]
        self.log_probabilities.append(float(scores[0].log_softmax(-1)[token]))
        only = torch.full_like(scores, -torch.inf)
        only[:, token] = 0
        return only
