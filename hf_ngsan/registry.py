"""The model types of this package, and their registration with transformers' Auto classes and pipelines.

```python
register_model_type(MyConfig, task="captioning")  # an architecture of another package
```
"""

import os
import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any

from .io.messages import type_and_reason


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
HERE = "hf_ngsan.models"
MODEL_TYPES = {
    "ngsan": ModelType(f"{HERE}.configuration_ngsan", "captioning", "NG-SAN", NGSAN_PAPER),
    "spatial_captioner": ModelType(
        f"{HERE}.configuration_spatial_captioner", "captioning", "the spatial captioner", SPATIAL_PAPER
    ),
    "mhsan": ModelType(f"{HERE}.configuration_mhsan", "retrieval", "MHSAN", MHSAN_PAPER),
    "mhsan_text": ModelType(f"{HERE}.modeling_mhsan_text"),
    "rstnet": ModelType(f"{HERE}.configuration_rstnet", "captioning", "RSTNet", RSTNET_PAPER),
    "rstnet_language_model": ModelType(
        f"{HERE}.configuration_rstnet", "language_modeling", "the language model of RSTNet", RSTNET_PAPER
    ),
    "nsa_transformer": ModelType(
        f"{HERE}.configuration_nsa_transformer",
        "translation",
        "a Transformer with normalized self-attention",
        NGSAN_PAPER,
    ),
    "mcan": ModelType(f"{HERE}.configuration_mcan", "visual_question_answering", "MCAN", MCAN_PAPER),
    "ngsan_vision": ModelType(f"{HERE}.configuration_vision"),
    "ngsan_vgg": ModelType(f"{HERE}.modeling_vgg"),
    "ngsan_resnext": ModelType(f"{HERE}.modeling_resnext"),
    "ngsan_efficientnet_lite": ModelType(f"{HERE}.modeling_efficientnet_lite"),
}
"""The registry of model types; [`register_model_type`] adds to it."""
PIPELINES = {
    "image-to-text": "hf_ngsan.loading.pipelines:CaptioningPipeline",
    "visual-question-answering": "hf_ngsan.loading.pipelines:VisualQuestionAnsweringPipeline",
    "translation": "hf_ngsan.loading.pipelines:TranslationPipeline",
}
"""Pipelines of this package, by the tasks of its configurations' `remote_pipelines`."""
IMAGE_TEXT_TO_TEXT = "hf_ngsan.loading.pipelines.ImageTextToTextPipeline"
"""The pipeline of this task of transformers: that of the package for its captioners, else transformers' own."""
COMMAND_LINE = ("hf-ngsan", "hf-ngsan.exe", "hf_ngsan.cli")


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
    if not is_of_transformers:
        register_classes(model_type)


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
        for one in vars(import_module(home)).values()
        if getattr(one, "model_type", None) == model_type and hasattr(one, "remote_classes")
    )
    file, name = locations[auto_class].split(".")
    return getattr(import_module(".".join([*home.split(".")[:-1], file])), name)


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


def is_command_line() -> bool:
    """Returns whether this process was started as `hf-ngsan ...` or `python -m hf_ngsan.cli ...`."""
    # sys.orig_argv ends like sys.argv, whose first word is only "-m" while Python looks for a module.
    return any(Path(program).name in COMMAND_LINE for program in sys.orig_argv[-len(sys.argv) :][:1])


def register() -> None:
    """Registers every model type with transformers: its Auto classes load them, and `pipeline()` knows their tasks."""
    from transformers import pipelines

    for model_type in own_model_types():
        register_classes(model_type)
    # `register_pipeline` would warn of a task that is there, and forget its default model.
    pipelines.PIPELINE_REGISTRY.supported_tasks["image-text-to-text"]["impl"] = IMAGE_TEXT_TO_TEXT
    keep_registered_tasks()


def register_classes(model_type: str) -> None:
    """Registers the classes and pipelines of a model type."""
    import transformers

    config: Any = config_class(model_type)
    for auto_class in config.remote_classes:
        kind: Any = model_class(model_type, auto_class)
        if auto_class == "AutoConfig":
            transformers.AutoConfig.register(model_type, kind, exist_ok=True)
        elif auto_class == "AutoImageProcessor":
            backends = {"pil": kind}
            transformers.AutoImageProcessor.register(config, image_processor_classes=backends, exist_ok=True)
        else:
            getattr(transformers, auto_class).register(config, kind, exist_ok=True)
    register_pipelines(config)


def register_pipelines(config: Any) -> None:
    """Registers the pipelines of an architecture, if transformers has none for their tasks."""
    import transformers
    from transformers.pipelines import PIPELINE_REGISTRY

    package = config.__module__.rpartition(".")[0]
    for task, described in getattr(config, "remote_pipelines", {}).items():
        if task not in PIPELINE_REGISTRY.supported_tasks:
            kind: Any = resolve_name(PIPELINES.get(task) or f"{package}.{described['impl'].replace('.', ':')}")
            models: Any = tuple(getattr(transformers, auto_class) for auto_class in described["pt"])
            PIPELINE_REGISTRY.register_pipeline(task, kind, pt_model=models, type=described["type"])
            del kind._registered_impl  # or saving a pipeline would copy this file of the package, not the model's own


def keep_registered_tasks() -> None:
    """Makes `pipeline()` find the pipelines that are registered for tasks which transformers 5 has removed.

    `transformers.pipelines._resolve_deprecated_task` (5.24) renames "image-to-text", and refuses "translation" and
    "visual-question-answering", before `pipeline()` looks into its registry. This is the only function of transformers
    that the package replaces; another task goes to the original.
    """
    from transformers import pipelines

    resolve = getattr(pipelines, "_resolve_deprecated_task", None)
    if resolve is None or resolve.__module__ == __name__:
        return

    def resolve_task(task: str) -> str:
        return task if task in pipelines.PIPELINE_REGISTRY.supported_tasks else resolve(task)

    pipelines._resolve_deprecated_task = resolve_task


class UserModuleError(ValueError):
    """A module that cannot be imported; the message names the option or key, the module and the reason."""


def import_user_module(name: str, asked_for_by: str) -> ModuleType:
    """Imports a module that registers something; one in the current folder is found too, after all other places.

    Args:
        name: as in Python, such as `package.module`.
        asked_for_by: option or key that names the module, for messages.

    Raises:
        UserModuleError: no such name or module, or a module that fails.
    """
    if not all(map(str.isidentifier, name.split("."))):
        raise UserModuleError(f"{asked_for_by}: {name!r} names no module; write it as in Python, e.g. package.module.")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        return import_module(name)
    except Exception as error:
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing and f"{name}.".startswith(f"{missing}."):
            raise UserModuleError(
                f"{asked_for_by}: there is no module {missing}; install it, start from the folder it lies in, or add "
                "that folder to PYTHONPATH."
            ) from None
        raise UserModuleError(
            f"{asked_for_by}: importing {name} failed ({type_and_reason(error)}); correct it."
        ) from error
