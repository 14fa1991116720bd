"""Private names of other libraries that the package uses because there are no public names for the purpose.

`python -m tests.drift` looks for them, so that a version without one is found before it fails for a user. A name
consists of the class or module, and the attribute.
"""

import ast
import importlib
import importlib.util
import inspect
import re
from pathlib import Path
from typing import Any

import hf_ngsan

TESTED_WITH = {
    **{"accelerate": "accelerate 1.15.0", "argparse": "Python 3.11", "datasets": "datasets 5.2.0"},
    **{"evaluate": "evaluate 0.4.6", "gradio": "gradio 6.31.0", "torch": "torch 2.13.0"},
    "transformers": "transformers 5.24.0",
}
"""The newest versions that have all names."""
PRIVATE_NAMES = {
    "accelerate.state.AcceleratorState._reset_state": "a process asks for another precision than before",
    "argparse.ArgumentParser._option_string_actions": "the known option that is nearest to an unknown one",
    "argparse.HelpFormatter._get_help_string": "defaults of options at the end of their help texts",
    "datasets.arrow_dataset.Dataset._fingerprint": "caches of rows made from columns are found again",
    "datasets.formatting._register_formatter": "formats of rows that travel to worker processes",
    "datasets.formatting.formatting.NumpyArrowExtractor._arrow_array_to_numpy": "lists of vectors as one array",
    "datasets.iterable_dataset.IterableDataset._resolve_features": "columns of a stream before its first row",
    "evaluate.Metric._compute": "for subclasses",
    "evaluate.Metric._info": "for subclasses",
    "gradio.EventData._data": "where a user clicked",
    "torch.nn.Module._modules": "modules exchanged in place",
    "transformers.PreTrainedConfig._attn_implementation": "the attention of a model, and of its parts",
    "transformers.PreTrainedConfig._attn_implementation_internal": "the same, without its setter",
    "transformers.PreTrainedModel._can_record_outputs": "the outputs that a model's forward can be asked for",
    "transformers.PreTrainedConfig._auto_class": "whether saving writes code too",
    "transformers.PreTrainedModel._get_resized_lm_head": "more words for a language model",
    "transformers.PreTrainedModel._init_weights": "for subclasses",
    "transformers.PreTrainedModel._keys_to_ignore_on_load_missing": "weights that come from another folder",
    "transformers.PreTrainedModel._keys_to_ignore_on_save": "frozen weights that are left out of a checkpoint",
    "transformers.ProcessorMixin._auto_class": "whether saving writes code too",
    "transformers.ProcessorMixin._get_arguments_from_pretrained": "a processor with or without an image processor",
    "transformers.ProcessorMixin._load_tokenizer_from_pretrained": "the same",
    "transformers.generation.GenerationMixin._expand_inputs_for_generation": "several captions of an image",
    "transformers.generation.GenerationMixin._prepare_cache_for_generation": "captions that share the keys of an image",
    "transformers.generation.GenerationMixin._update_model_kwargs_for_generation": "decoding step by step",
    "transformers.generation.GenerationMixin._validate_model_kwargs": "inputs that only a processor knows",
    "transformers.image_processing_backends.PilBackend._prepare_image_like_inputs": "images decoded by this package",
    "transformers.image_processing_backends.PilBackend._preprocess": "for subclasses",
    "transformers.models.auto.auto_factory._BaseAutoModelClass._model_mapping": "the class of a configuration",
    "transformers.pipelines._resolve_deprecated_task": "image-to-text stays a task of its own",
    "transformers.pipelines.Pipeline._forward": "for subclasses",
    "transformers.pipelines.Pipeline._registered_impl": "saving a pipeline copies the model's own code",
    "transformers.pipelines.Pipeline._sanitize_parameters": "for subclasses",
}
"""The purpose of each name."""
DOCUMENTED = {"_asdict", "_exit", "_fields", "_replace"}
"""Names with an underscore that a library documents, such as `os._exit` and the `_fields` of named tuples."""


def is_there(name: str) -> bool:
    """Returns whether a module, or a class or its instances, has an attribute."""
    path, _, attribute = name.rpartition(".")
    try:
        owner: Any = importlib.import_module(path)
    except ModuleNotFoundError:
        module, _, class_name = path.rpartition(".")
        owner = getattr(importlib.import_module(module), class_name)
    if hasattr(owner, attribute) or not inspect.isclass(owner):
        return hasattr(owner, attribute)
    return any(re.search(rf"\bself\.{attribute}\b", inspect.getsource(base)) for base in owner.__mro__[:-1])


def missing_names() -> list[str]:
    """Returns a line for each name that is missing in the installed libraries."""
    return [
        f"{name}: there in {TESTED_WITH[name.partition('.')[0]]}, not here"
        for name in PRIVATE_NAMES
        if importlib.util.find_spec(name.partition(".")[0]) is not None and not is_there(name)
    ]


def used_names() -> set[str]:
    """Returns the attributes with an underscore that the package's code reads, sets, imports or defines."""
    used = set()
    for file in Path(hf_ngsan.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                used.add(node.attr)
            elif isinstance(node, ast.ImportFrom):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.FunctionDef):
                used.add(node.name)
            elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "setattr", "hasattr"):
                used |= {str(item.value) for item in node.args[1:2] if isinstance(item, ast.Constant)}
    return {name for name in used if re.match("_[^_]", name)} - DOCUMENTED
