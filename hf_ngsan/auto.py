"""Registration with transformers' Auto classes and pipelines.

`import hf_ngsan` stays light: a class is registered when transformers imports the Auto module that could ask for it.
"""

import importlib
import importlib.abc
import importlib.machinery
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class ModelType:
    """An architecture of this package.

    Attributes:
        configuration: file of `models/` that has its configuration class.
        task: what its models are trained for, a name of `hf_ngsan.tasks`; `None` for parts of models.
    """

    configuration: str
    task: str | None = None


MODEL_TYPES = {
    "ngsan": ModelType("configuration_ngsan", task="captioning"),
    "spatial_captioner": ModelType("configuration_spatial_captioner", task="captioning"),
    "ngsan_vision": ModelType("configuration_vision"),
    "ngsan_vgg": ModelType("configuration_vgg"),
    "ngsan_resnext": ModelType("configuration_resnext"),
}
CAPTIONERS = tuple(name for name, entry in MODEL_TYPES.items() if entry.task == "captioning")
CONFIGURATION_FILES = {name: entry.configuration for name, entry in MODEL_TYPES.items()}
AUTO = "transformers.models.auto"


def config_class(model_type: str):
    """The configuration class of one of the package's model types; a ValueError names the known ones."""
    return model_class(model_type, "AutoConfig")


def processor_class(model_type: str):
    """The processor class of one of the package's model types; a ValueError names the known ones."""
    return model_class(model_type, "AutoProcessor")


def model_class(model_type: str, auto_class: str):
    """The class of a model type that stands for an Auto class, e.g. `model_class("ngsan", "AutoModel")`."""
    if model_type not in CONFIGURATION_FILES:
        known = ", ".join(CONFIGURATION_FILES)
        raise ValueError(f"{model_type!r} is not a model type of this package; it has {known}.")
    configuration = importlib.import_module(f"hf_ngsan.models.{CONFIGURATION_FILES[model_type]}")
    config = next(
        value
        for value in vars(configuration).values()
        if getattr(value, "model_type", None) == model_type and hasattr(value, "remote_classes")
    )
    file, name = config.remote_classes[auto_class].split(".")
    return getattr(importlib.import_module(f"hf_ngsan.models.{file}"), name)


def register_configurations():
    from transformers import AutoConfig

    for model_type in CONFIGURATION_FILES:
        AutoConfig.register(model_type, config_class(model_type), exist_ok=True)


def register_models():
    from transformers.models.auto import modeling_auto

    for model_type in CONFIGURATION_FILES:
        config = config_class(model_type)
        for auto_class in config.remote_classes:
            if auto_class.startswith(("AutoModel", "AutoBackbone")):
                model = model_class(model_type, auto_class)
                getattr(modeling_auto, auto_class).register(config, model, exist_ok=True)


def register_processors():
    from transformers import AutoProcessor

    for model_type in CAPTIONERS:
        AutoProcessor.register(config_class(model_type), processor_class(model_type), exist_ok=True)


def register_image_processors():
    from transformers import AutoImageProcessor

    for model_type in CONFIGURATION_FILES:
        image_processor = model_class(model_type, "AutoImageProcessor")
        AutoImageProcessor.register(
            config_class(model_type), image_processor_classes={"pil": image_processor}, exist_ok=True
        )


def register_pipelines():
    from transformers.pipelines import PIPELINE_REGISTRY

    # A name is imported when it is asked for; unlike `register_pipeline` this leaves the task's defaults alone.
    task = PIPELINE_REGISTRY.supported_tasks["image-text-to-text"]
    task["impl"] = "hf_ngsan.pipelines.ImageTextToTextPipeline"
    # transformers renames "image-to-text" to this task and says so in a logging call that fails with a stack trace.
    logging.getLogger("transformers.pipelines").addFilter(is_no_renaming)


def is_no_renaming(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("The task `image-to-text` has been removed")


REGISTRATIONS = {
    f"{AUTO}.configuration_auto": register_configurations,
    f"{AUTO}.modeling_auto": register_models,
    f"{AUTO}.processing_auto": register_processors,
    f"{AUTO}.image_processing_auto": register_image_processors,
    "transformers.pipelines": register_pipelines,
}


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls functions once certain modules are there, at a moment when no module of some packages is half imported.

    Args:
        packages (`tuple[str, ...]`): names of the packages.
        callbacks (`dict[str, Callable]`): module of one of the packages to function without arguments.
    """

    def __init__(self, packages: tuple[str, ...], callbacks: dict[str, Callable[[], None]]):
        self.prefixes = tuple(f"{package}." for package in packages)
        self.callbacks = dict(callbacks)
        self.imports = threading.local()

    def find_spec(self, name, path=None, target=None):
        if not name.startswith(self.prefixes):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_call_back(module):
            self.imports.depth = getattr(self.imports, "depth", 0) + 1
            try:
                execute(module)
            finally:
                self.imports.depth -= 1
            if self.imports.depth == 0:
                self.call_back()

        spec.loader.exec_module = execute_and_call_back
        return spec

    def call_back(self):
        for name in [name for name in self.callbacks if name in sys.modules]:
            callback = self.callbacks.pop(name, None)
            if callback is not None:
                callback()
        if not self.callbacks and self in sys.meta_path:
            sys.meta_path.remove(self)


def register():
    """Register every architecture: now with what transformers has imported, later with the rest."""
    after_import = AfterImport(("transformers", "hf_ngsan"), REGISTRATIONS)
    sys.meta_path.insert(0, after_import)
    after_import.call_back()
