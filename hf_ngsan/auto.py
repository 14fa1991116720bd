"""The model types of this package, and their registration with transformers' Auto classes and pipelines.

```python
register_model_type(MyConfig, task="captioning")  # an architecture of another package
```

`import hf_ngsan` stays light: a configuration is registered when transformers imports the Auto module that could ask
for it, and a model is imported when it is looked up. The import hook below adds 0.00 s to `import transformers`; to
register all configurations at once would import torch and transformers' Auto modules, for 1.3 s of processor time
(median of 10 pairs of `benchmarks/import_time.py --eager`, transformers 5.24, torch 2.13).
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, wraps
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Paper:
    """A publication that describes an architecture.

    Attributes:
        title, authors, venue: as a card names it, such as "Guo et al." and "CVPR 2020".
        citation: BibTeX.
    """

    title: str
    authors: str
    venue: str
    citation: str = ""

    def __str__(self) -> str:
        return f"*{self.title}* ({self.authors}, {self.venue})"


@dataclass(frozen=True)
class ModelType:
    """An architecture.

    Attributes:
        configuration: module that has its configuration class.
        task: the task that its models are trained for, by its name in `hf_ngsan.tasks`; `None` for parts of models.
        name: of its models in texts, such as "NG-SAN"; the model type itself if it is empty.
        paper: the one that describes it, if any.
    """

    configuration: str
    task: str | None = None
    name: str = ""
    paper: Paper | None = None


PROCEEDINGS = {
    "CVPR": "IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)",
    "ESANN": "European Symposium on Artificial Neural Networks (ESANN)",
    "WACV": "IEEE/CVF Winter Conference on Applications of Computer Vision (WACV)",
}


def cited(key: str, title: str, authors: str, venue: str, year: int) -> Paper:
    """Returns a publication with its BibTeX entry; the authors are all of them, as BibTeX has them."""
    fields = {"title": f"{{{title}}}", "author": authors, "booktitle": PROCEEDINGS[venue], "year": str(year)}
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    first_author = authors.partition(",")[0]
    return Paper(title, f"{first_author} et al.", f"{venue} {year}", f"@inproceedings{{{key},\n{lines}\n}}")


NGSAN_PAPER = cited(
    "guo2020normalized",
    "Normalized and Geometry-Aware Self-Attention Network for Image Captioning",
    "Guo, Longteng and Liu, Jing and Zhu, Xinxin and Yao, Peng and Lu, Shichen and Lu, Hanqing",
    "CVPR",
    2020,
)
RSTNET_PAPER = cited(
    "zhang2021rstnet",
    "RSTNet: Captioning with Adaptive Attention on Visual and Non-Visual Words",
    "Zhang, Xuying and Sun, Xiaoshuai and Luo, Yunpeng and Ji, Jiayi and Zhou, Yiyi and Wu, Yongjian and Huang, "
    "Feiyue and Ji, Rongrong",
    "CVPR",
    2021,
)
SPATIAL_PAPER = cited(
    "springenberg2018image",
    "Image-to-Text Transduction with Spatial Self-Attention",
    "Springenberg, Sebastian and Lakomkin, Egor and Weber, Cornelius and Wermter, Stefan",
    "ESANN",
    2018,
)
MHSAN_PAPER = cited(
    "park2020mhsan",
    "MHSAN: Multi-Head Self-Attention Network for Visual Semantic Embedding",
    "Park, Geondo and Han, Chihye and Yoon, Wonjun and Kim, Daeshik",
    "WACV",
    2020,
)
MCAN_PAPER = cited(
    "yu2019deep",
    "Deep Modular Co-Attention Networks for Visual Question Answering",
    "Yu, Zhou and Yu, Jun and Cui, Yuhao and Tao, Dacheng and Tian, Qi",
    "CVPR",
    2019,
)
HERE = "hf_ngsan.models.configuration_"
MODEL_TYPES = {
    "ngsan": ModelType(f"{HERE}ngsan", "captioning", "NG-SAN", NGSAN_PAPER),
    "spatial_captioner": ModelType(f"{HERE}spatial_captioner", "captioning", "the spatial captioner", SPATIAL_PAPER),
    "mhsan": ModelType(f"{HERE}mhsan", "retrieval", "MHSAN", MHSAN_PAPER),
    "mhsan_text": ModelType(f"{HERE}mhsan_text"),
    "rstnet": ModelType(f"{HERE}rstnet", "captioning", "RSTNet", RSTNET_PAPER),
    "rstnet_language_model": ModelType(
        f"{HERE}rstnet_language_model", "language_modeling", "the language model of RSTNet", RSTNET_PAPER
    ),
    "nsa_transformer": ModelType(
        f"{HERE}nsa_transformer", "translation", "a Transformer with normalized self-attention", NGSAN_PAPER
    ),
    "mcan": ModelType(f"{HERE}mcan", "visual_question_answering", "MCAN", MCAN_PAPER),
    "ngsan_vision": ModelType(f"{HERE}vision"),
    "ngsan_vgg": ModelType(f"{HERE}vgg"),
    "ngsan_resnext": ModelType(f"{HERE}resnext"),
    "ngsan_efficientnet_lite": ModelType(f"{HERE}efficientnet_lite"),
}
"""The registry of model types; [`register_model_type`] adds to it."""
AUTO = "transformers.models.auto"
KEEPS_NAME = "keeps_image_to_text"
"""Attribute of the function of transformers that was changed to leave this task alone."""


def model_types_of(task: str) -> tuple[str, ...]:
    """Returns the model types that belong to a task."""
    return tuple(name for name, entry in MODEL_TYPES.items() if entry.task == task)


def register_model_type(
    config_class: type, task: str | None = None, *, name: str = "", paper: Paper | None = None
) -> None:
    """Adds an architecture of another package, for the Auto classes, pipelines, `save_for_hub` and the tasks.

    Args:
        config_class: its configuration. That of an own architecture is a [`~models.configuration_hub.HubConfig`] with a
            `model_type` of its own, whose `remote_classes` name the classes of the architecture, each as `file.Class`
            with the file beside that of the configuration; `AutoConfig` is one of them. That of a model of transformers
            (BLIP, CLIP, ...) is taken as it is: the Auto classes know its model.
        task: the task that its models are trained for; `None` for parts of models.
        name: of its models on their cards; the model type, if it is left out.
        paper: the one that describes the architecture.

    Raises:
        ValueError: the class has no `remote_classes`, or its model type belongs to another architecture.
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    kind, model_type = config_class.__name__, getattr(config_class, "model_type", "")
    is_of_transformers = CONFIG_MAPPING_NAMES.get(model_type) == kind and is_in_transformers(config_class.__module__)
    if not model_type or not (is_of_transformers or "AutoConfig" in getattr(config_class, "remote_classes", {})):
        raise ValueError(f"{kind} needs a model_type, and remote_classes with AutoConfig among them.")
    known = MODEL_TYPES.get(model_type)
    is_of_another = known is not None and known.configuration != config_class.__module__
    if is_of_another or (model_type in CONFIG_MAPPING_NAMES and not is_of_transformers):
        raise ValueError(f"The model_type {model_type!r} of {kind} belongs to another architecture; choose another.")
    MODEL_TYPES[model_type] = ModelType(config_class.__module__, task, name, paper)
    for module, registration in REGISTRATIONS.items():
        if module in sys.modules:
            registration()


def is_in_transformers(module: str) -> bool:
    return module.startswith("transformers.")


def own_model_types(task: str | None = None) -> tuple[str, ...]:
    """Returns the model types to be registered with transformers, all but its own; of a task, or of any if `None`."""
    known = MODEL_TYPES if task is None else model_types_of(task)
    return tuple(name for name in known if not is_in_transformers(MODEL_TYPES[name].configuration))


def config_class(model_type: str) -> type:
    """Returns the configuration class of a model type; a ValueError names the known ones."""
    return model_class(model_type, "AutoConfig")


def processor_class(model_type: str) -> type:
    """Returns the processor class of a model type; a ValueError names the known ones."""
    return model_class(model_type, "AutoProcessor")


def model_class(model_type: str, auto_class: str) -> type:
    """Returns the class of a model type that stands for an Auto class, e.g. `model_class("ngsan", "AutoModel")`."""
    if model_type not in MODEL_TYPES:
        raise ValueError(f"{model_type!r} is not a model type of this package; it has {', '.join(MODEL_TYPES)}.")
    home = MODEL_TYPES[model_type].configuration
    if model_type not in own_model_types():
        return class_of_transformers(model_type, auto_class)
    locations = next(
        one.remote_classes
        for one in vars(importlib.import_module(home)).values()
        if getattr(one, "model_type", None) == model_type and hasattr(one, "remote_classes")
    )
    file, name = locations[auto_class].split(".")
    return getattr(importlib.import_module(".".join([*home.split(".")[:-1], file])), name)


def class_of_transformers(model_type: str, auto_class: str) -> type:
    """Returns the class that one of transformers' own Auto classes has for one of its own model types.

    Raises:
        KeyError: it has none.
    """
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    config = CONFIG_MAPPING[model_type]
    if auto_class == "AutoConfig":
        return config
    mapping: Any = PROCESSOR_MAPPING
    if auto_class != "AutoProcessor":
        mapping = getattr(transformers, auto_class)._model_mapping
    found = mapping[config]
    return found[0] if isinstance(found, tuple) else found


def own_configurations(auto_class: str) -> Iterator[Any]:
    """Yields the configuration classes of [`own_model_types`] whose architecture has a class for an Auto class."""
    for model_type in own_model_types():
        config: Any = config_class(model_type)
        if auto_class in config.remote_classes:
            yield config


def register_configurations() -> None:
    from transformers import AutoConfig

    for config in own_configurations("AutoConfig"):
        AutoConfig.register(config.model_type, config, exist_ok=True)


class LazyClasses(dict):
    """The registered classes of a mapping of transformers; a `partial` among them is called when it is looked up."""

    def __getitem__(self, key: type) -> type:
        value = super().__getitem__(key)
        return value() if isinstance(value, partial) else value

    def values(self) -> Any:
        return [self[key] for key in self]

    def items(self) -> Any:
        return [(key, self[key]) for key in self]


def register_models() -> None:
    from transformers.models.auto import modeling_auto

    for config in own_configurations("AutoConfig"):
        for auto_class in config.remote_classes:
            if auto_class.startswith(("AutoModel", "AutoBackbone")):
                mapping = getattr(modeling_auto, auto_class)._model_mapping
                mapping._extra_content = LazyClasses(mapping._extra_content)
                mapping.register(config, partial(model_class, config.model_type, auto_class), exist_ok=True)


def register_processors() -> None:
    from transformers import AutoProcessor

    for config in own_configurations("AutoProcessor"):
        AutoProcessor.register(config, processor_class(config.model_type), exist_ok=True)


def register_image_processors() -> None:
    from transformers import AutoImageProcessor

    for config in own_configurations("AutoImageProcessor"):
        classes = {"pil": model_class(config.model_type, "AutoImageProcessor")}
        AutoImageProcessor.register(config, image_processor_classes=classes, exist_ok=True)


def register_pipelines() -> None:
    import transformers
    from transformers import pipelines

    from .ground.packaged_models import TAKES_NAMES, takes_names

    # A name is imported when it is asked for; unlike `register_pipeline` this leaves the task's defaults alone.
    supported: Any = pipelines.PIPELINE_REGISTRY.supported_tasks
    supported["image-text-to-text"]["impl"] = "hf_ngsan.loading.pipelines.ImageTextToTextPipeline"
    supported["image-to-text"] = {
        **supported["image-text-to-text"],
        "impl": "hf_ngsan.loading.pipelines.CaptioningPipeline",
    }
    # transformers 5 takes it for another name of the task above.
    resolve = getattr(pipelines, "_resolve_deprecated_task", None)
    if resolve is not None and not hasattr(resolve, KEEPS_NAME):
        pipelines._resolve_deprecated_task = keeps_image_to_text(resolve)  # type: ignore[assignment]
    removed = getattr(pipelines, "REMOVED_TASKS", {})
    if removed.pop("vqa", None):
        pipelines.PIPELINE_REGISTRY.task_aliases["vqa"] = "visual-question-answering"
    for model_type, entry in MODEL_TYPES.items():
        kind: Any = config_class(model_type)
        for task, described in getattr(kind, "remote_pipelines", {}).items():
            if task in ("image-to-text", "image-text-to-text"):
                continue
            home, (file, name) = entry.configuration.rpartition(".")[0], described["impl"].split(".")
            impl = f"hf_ngsan.loading.pipelines.{name}" if home == "hf_ngsan.models" else f"{home}.{file}.{name}"
            classes = tuple(getattr(transformers, auto_class) for auto_class in described["pt"])
            removed.pop(task, None)
            supported.setdefault(task, {"impl": impl, "pt": classes, "default": {}, "type": described["type"]})
    if not hasattr(pipelines.get_task, TAKES_NAMES):
        pipelines.get_task = takes_names(knows_own_tasks(pipelines.get_task))
    for asking in ("resolve_revision", "find_adapter_config_file"):  # the Hub, before anything is loaded
        if hasattr(pipelines, asking):
            setattr(pipelines, asking, takes_names(getattr(pipelines, asking)))


def knows_own_tasks(get_task: Callable[..., str]) -> Callable[..., str]:
    """Makes transformers' `get_task`, which asks the Hub, return the task of a folder with a model of this package."""

    @wraps(get_task)
    def task_of(model: str, *args: Any, **kwargs: Any) -> str:
        from transformers import PreTrainedConfig

        if os.path.isdir(model):
            model_type = PreTrainedConfig.get_config_dict(model)[0].get("model_type")
            tasks = getattr(config_class(model_type), "remote_pipelines", {}) if model_type in MODEL_TYPES else {}
            if tasks:
                return next(iter(tasks))
        return get_task(model, *args, **kwargs)

    return task_of


def keeps_image_to_text(resolve: Callable[[str], str]) -> Callable[[str], str]:
    """Makes transformers' function, which renames the task, leave it: captioners have a pipeline of their own."""

    @wraps(resolve)
    def name_of(task: str) -> str:
        return task if task == "image-to-text" else resolve(task)

    setattr(name_of, KEEPS_NAME, True)
    return name_of


REGISTRATIONS = {
    f"{AUTO}.configuration_auto": register_configurations,
    f"{AUTO}.modeling_auto": register_models,
    f"{AUTO}.processing_auto": register_processors,
    f"{AUTO}.image_processing_auto": register_image_processors,
    "transformers.pipelines": register_pipelines,
}


LOADED_BY_NAME = (
    "transformers.configuration_utils",
    "transformers.feature_extraction_utils",
    "transformers.generation.configuration_utils",
    "transformers.image_processing_base",
    "transformers.modeling_utils",
    "transformers.processing_utils",
    "transformers.tokenization_utils_base",
    "transformers.video_processing_utils",
    f"{AUTO}.configuration_auto",
    f"{AUTO}.feature_extraction_auto",
    f"{AUTO}.image_processing_auto",
    f"{AUTO}.modeling_auto",
    f"{AUTO}.processing_auto",
    f"{AUTO}.tokenization_auto",
    f"{AUTO}.video_processing_auto",
)
"""Modules of transformers with classes that have `from_pretrained`, which takes the names of packaged models too."""


def name_packaged_models(module: str) -> None:
    from .ground.packaged_models import classes_take_names

    classes_take_names(sys.modules[module])


class AfterImport(importlib.abc.MetaPathFinder):
    """Calls functions once certain modules are there, at a moment when no module of some packages is half imported.

    Args:
        packages (`tuple[str, ...]`): names of the packages.
        callbacks (`Iterable[tuple[str, Callable]]`): pairs of a module of one of the packages and a function without
            arguments.
    """

    def __init__(self, packages: tuple[str, ...], callbacks: Iterable[tuple[str, Callable[[], None]]]):
        self.prefixes = tuple(f"{package}." for package in packages)
        self.callbacks = list(callbacks)
        self.imports = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith(self.prefixes):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def execute_and_call_back(module: ModuleType) -> None:
            self.imports.depth = getattr(self.imports, "depth", 0) + 1
            try:
                execute(module)
            finally:
                self.imports.depth -= 1
            if self.imports.depth == 0:
                self.call_back()

        loader: Any = spec.loader
        loader.exec_module = execute_and_call_back
        return spec

    def call_back(self) -> None:
        ready = [entry for entry in self.callbacks if entry[0] in sys.modules]
        for entry in ready:
            if entry in self.callbacks:  # unless an import of another callback has called it meanwhile
                self.callbacks.remove(entry)
                entry[1]()
        if not self.callbacks and self in sys.meta_path:
            sys.meta_path.remove(self)


def register() -> None:
    """Registers every architecture: now with what transformers has imported, later with the rest."""
    callbacks = {name: partial(name_packaged_models, name) for name in LOADED_BY_NAME}
    after_import = AfterImport(("transformers", "hf_ngsan"), [*REGISTRATIONS.items(), *callbacks.items()])
    sys.meta_path.insert(0, after_import)
    after_import.call_back()
