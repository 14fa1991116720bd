"""The model types of this package with their papers, and their registration with transformers."""

import sys
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

PROCEEDINGS = {
    "CVPR": "IEEE/CVF Conference on Computer Vision and Pattern Recognition (CVPR)",
    "ESANN": "European Symposium on Artificial Neural Networks (ESANN)",
    "WACV": "IEEE/CVF Winter Conference on Applications of Computer Vision (WACV)",
}


@dataclass(frozen=True)
class Paper:
    """The paper of an architecture; model cards show authors and venue, such as "Guo et al." and "CVPR 2020"."""

    title: str
    authors: str
    venue: str
    citation: str = ""

    def __str__(self) -> str:
        return f"*{self.title}* ({self.authors}, {self.venue})"


def cited(key: str, title: str, authors: str, published: str) -> Paper:
    """Returns a paper with its BibTeX entry; `authors` is a BibTeX list, and `published` has the form "CVPR 2020"."""
    venue, year = published.split()
    fields = {"title": f"{{{title}}}", "author": authors, "booktitle": PROCEEDINGS[venue], "year": year}
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    first_author = authors.partition(",")[0]
    return Paper(title, f"{first_author} et al.", published, f"@inproceedings{{{key},\n{lines}\n}}")


NGSAN = cited(
    "guo2020normalized",
    "Normalized and Geometry-Aware Self-Attention Network for Image Captioning",
    "Guo, Longteng and Liu, Jing and Zhu, Xinxin and Yao, Peng and Lu, Shichen and Lu, Hanqing",
    "CVPR 2020",
)
RSTNET = cited(
    "zhang2021rstnet",
    "RSTNet: Captioning with Adaptive Attention on Visual and Non-Visual Words",
    "Zhang, Xuying and Sun, Xiaoshuai and Luo, Yunpeng and Ji, Jiayi and Zhou, Yiyi and Wu, Yongjian and Huang, "
    "Feiyue and Ji, Rongrong",
    "CVPR 2021",
)
SPATIAL = cited(
    "springenberg2018image",
    "Image-to-Text Transduction with Spatial Self-Attention",
    "Springenberg, Sebastian and Lakomkin, Egor and Weber, Cornelius and Wermter, Stefan",
    "ESANN 2018",
)
MHSAN = cited(
    "park2020mhsan",
    "MHSAN: Multi-Head Self-Attention Network for Visual Semantic Embedding",
    "Park, Geondo and Han, Chihye and Yoon, Wonjun and Kim, Daeshik",
    "WACV 2020",
)
MCAN = cited(
    "yu2019deep",
    "Deep Modular Co-Attention Networks for Visual Question Answering",
    "Yu, Zhou and Yu, Jun and Cui, Yuhao and Tao, Dacheng and Tian, Qi",
    "CVPR 2019",
)


@dataclass(frozen=True)
class ModelType:
    """An architecture."""

    configuration: str  # module with its configuration class
    task: str | None = None  # a name in `hf_ngsan.tasks`; None for parts of models
    name: str = ""  # name of its models in texts, such as "NG-SAN"; the model type if empty
    paper: Paper | None = None


MODELS = "hf_ngsan.models"
MODEL_TYPES = {
    "ngsan": ModelType(f"{MODELS}.configuration_ngsan", "captioning", "NG-SAN", NGSAN),
    "spatial_captioner": ModelType(
        f"{MODELS}.configuration_spatial_captioner", "captioning", "the spatial captioner", SPATIAL
    ),
    "mhsan": ModelType(f"{MODELS}.configuration_mhsan", "retrieval", "MHSAN", MHSAN),
    "mhsan_text": ModelType(f"{MODELS}.modeling_mhsan_text"),
    "rstnet": ModelType(f"{MODELS}.configuration_rstnet", "captioning", "RSTNet", RSTNET),
    "rstnet_language_model": ModelType(
        f"{MODELS}.configuration_rstnet", "language_modeling", "the language model of RSTNet", RSTNET
    ),
    "nsa_transformer": ModelType(
        f"{MODELS}.configuration_nsa_transformer",
        "translation",
        "a Transformer with normalized attention",
        NGSAN,
    ),
    "mcan": ModelType(f"{MODELS}.configuration_mcan", "visual_question_answering", "MCAN", MCAN),
    "ngsan_vision": ModelType(f"{MODELS}.configuration_vision"),
    "ngsan_vgg": ModelType(f"{MODELS}.modeling_vgg"),
    "ngsan_resnext": ModelType(f"{MODELS}.modeling_resnext"),
    "ngsan_efficientnet_lite": ModelType(f"{MODELS}.modeling_efficientnet_lite"),
}
PIPELINES = {  # pipelines of this package, by the tasks in `remote_pipelines` of its configurations
    "image-to-text": "hf_ngsan.loading.pipelines:CaptioningPipeline",
    "visual-question-answering": "hf_ngsan.loading.pipelines:QuestionAnsweringPipeline",
    "translation": "hf_ngsan.models.pipeline_translation:TranslationPipeline",
}
IMAGE_TEXT_TO_TEXT = "hf_ngsan.loading.pipelines.ImageTextToTextPipeline"  # else transformers' own
COMMAND_LINE = ("hf-ngsan", "hf-ngsan.exe", "hf_ngsan.cli")


def own_model_types(task: str | None = None) -> tuple[str, ...]:
    """Returns the model types of a task, or all of them."""
    return tuple(name for name, entry in MODEL_TYPES.items() if task in (None, entry.task))


def register_model_type(
    config_class: type, task: str | None = None, *, name: str = "", paper: Paper | None = None
) -> None:
    """Adds an architecture of another package to the Auto classes, pipelines, `save_for_hub` and the tasks.

    Args:
        config_class: its configuration, a [`~models.configuration_hub.HubConfig`] with a new `model_type`. Its
            `remote_classes` name the classes of the architecture, including `AutoConfig`, as `file.Class`; the file is
            in the folder of the configuration. A ValueError names what is missing.
        task, name, paper: see [`ModelType`].
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    kind, model_type = config_class.__name__, getattr(config_class, "model_type", "")
    if not model_type or "AutoConfig" not in getattr(config_class, "remote_classes", {}):
        raise ValueError(f"{kind} needs a model_type, and remote_classes with AutoConfig among them.")
    known = MODEL_TYPES.get(model_type)
    if model_type in CONFIG_MAPPING_NAMES or (known and known.configuration != config_class.__module__):
        raise ValueError(f"The model_type {model_type!r} of {kind} belongs to another architecture; choose another.")
    MODEL_TYPES[model_type] = ModelType(config_class.__module__, task, name, paper)
    register_classes(model_type)


def model_class(model_type: str, auto_class: str) -> type:
    """Returns the class that an Auto class loads for a model type, e.g. `model_class("ngsan", "AutoModel")`."""
    home = MODEL_TYPES[model_type].configuration
    kinds = vars(import_module(home)).values()
    [locations, *_] = (kind.remote_classes for kind in kinds if getattr(kind, "model_type", None) == model_type)
    file, name = locations[auto_class].split(".")
    package = home.rpartition(".")[0]  # empty for a top-level module
    return getattr(import_module(f"{package}.{file}" if package else file), name)


def is_command_line() -> bool:
    """Returns whether this process was started as `hf-ngsan ...` or `python -m hf_ngsan.cli ...`."""
    # sys.orig_argv ends like sys.argv; the first word of sys.argv is "-m" while Python looks for the module.
    return any(Path(program).name in COMMAND_LINE for program in sys.orig_argv[-len(sys.argv) :][:1])


def register() -> None:
    """Registers every model type with transformers' Auto classes, and their tasks with `pipeline()`."""
    from transformers.pipelines import PIPELINE_REGISTRY

    for model_type in MODEL_TYPES:
        register_classes(model_type)
    # `register_pipeline` would warn about an existing task and drop its default model.
    PIPELINE_REGISTRY.supported_tasks["image-text-to-text"]["impl"] = IMAGE_TEXT_TO_TEXT
    keep_registered_tasks()


def register_classes(model_type: str) -> None:
    import transformers
    from transformers.pipelines import PIPELINE_REGISTRY

    config: Any = model_class(model_type, "AutoConfig")
    for auto_class in config.remote_classes:
        kind: Any = model_class(model_type, auto_class)
        if auto_class == "AutoConfig":
            transformers.AutoConfig.register(model_type, kind, exist_ok=True)
        elif auto_class == "AutoImageProcessor":
            transformers.AutoImageProcessor.register(config, image_processor_classes={"pil": kind}, exist_ok=True)
        else:
            getattr(transformers, auto_class).register(config, kind, exist_ok=True)
    package = config.__module__.rpartition(".")[0]
    for task, described in getattr(config, "remote_pipelines", {}).items():
        if task not in PIPELINE_REGISTRY.supported_tasks:  # tasks that transformers does not have
            pipeline: Any = resolve_name(PIPELINES.get(task) or f"{package}.{described['impl'].replace('.', ':')}")
            models: Any = tuple(getattr(transformers, auto_class) for auto_class in described["pt"])
            PIPELINE_REGISTRY.register_pipeline(task, pipeline, pt_model=models, type=described["type"])
            del pipeline._registered_impl  # saving would copy this file instead of that of the model


def keep_registered_tasks() -> None:
    """Makes `pipeline()` find the pipelines registered for tasks that transformers 5 has removed.

    `transformers.pipelines._resolve_deprecated_task` (5.24) renames "image-to-text", and refuses "translation" and
    "visual-question-answering", before `pipeline()` looks into its registry. Nothing else in transformers is replaced.
    """
    from transformers import pipelines

    resolve = getattr(pipelines, "_resolve_deprecated_task", None)
    if resolve is None or resolve.__module__ == __name__:
        return

    def resolve_task(task: str) -> str:
        return task if task in pipelines.PIPELINE_REGISTRY.supported_tasks else resolve(task)

    pipelines._resolve_deprecated_task = resolve_task
