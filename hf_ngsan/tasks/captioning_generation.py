"""Loads captioners, captions rows and images, and scores the captions."""

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ..data.collator import visual_arguments
from ..data.readers import ExtraScores
from ..guests.captioners import caption_images_of, guest_of
from ..io.files import with_file_names, write_output
from ..languages import caption_units, language_of
from ..loading.models import ModelFolderError, is_guest, load_captioner
from ..loading.pipelines import CaptioningPipeline
from ..metrics import CaptionMetrics
from ..models.captioning import CaptioningForConditionalGeneration
from ..models.decoding import with_search
from ..models.ensemble import EnsembleForConditionalGeneration
from ..training.batches import map_sharded, take
from ..training.task import Evaluation
from ..visualization import plot_frame_attention, plot_word_maps
from .caption_rows import prepare_figures, save_attention
from .captioning_files import CaptionedImage

if TYPE_CHECKING:
    from .retrieval_search import Reranker


def load_captioners(names: Sequence[str]) -> tuple[PreTrainedModel, Any]:
    """Loads a captioner, or several as an ensemble, and the processor of the first."""
    loaded: list[tuple[PreTrainedModel, Any]] = [load_captioner(name) for name in names]
    if len(loaded) == 1:
        return loaded[0]
    first = requirements(loaded[0][1])
    for name, (model, processor) in zip(names, loaded, strict=True):
        if is_guest(model.config):
            raise ModelFolderError(f"{name} is a {model.config.model_type} model, which cannot be in an ensemble.")
        for what, required in requirements(processor).items():
            if required != first[what]:
                raise ModelFolderError(f"{name} has another {what} than {names[0]}; an ensemble must share it.")
    return EnsembleForConditionalGeneration([model for model, _ in loaded]).eval(), loaded[0][1]


def requirements(processor: Any) -> dict[str, Any]:
    images = processor.image_processor
    preprocessing = None if images is None else images.to_dict()
    return {"vocabulary": processor.tokenizer.get_vocab(), "preprocessing of images": preprocessing}


def generate_captions(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    rows: Dataset | Sequence[dict],
    accelerator: Accelerator | None = None,
    *,
    prefixes: Sequence[str] | None = None,
    batch_size: int = 64,
    **generate_arguments: Any,
) -> list[str]:
    """Captions every row of the feature contract once, in order; captions continue the texts in `prefixes`.

    The captioner must be on the accelerator's device, in evaluation mode and not wrapped. All processes of the
    accelerator share the work, and each returns the whole result. Arguments are those of `model.generate`, such as
    `num_beams`.
    """

    def caption(indices: range) -> list[str]:
        prefixes_of_batch = None if prefixes is None else [prefixes[index] for index in indices]
        return caption_batch(model, processor, take(rows, indices), prefixes_of_batch, **generate_arguments)

    return map_sharded(caption, len(rows), batch_size, accelerator, description="captioning")


def greedily(max_new_tokens: int) -> dict[str, Any]:
    """Returns the arguments of `generate()` for the greedy completion of a caption."""
    return {"num_beams": 1, "length_penalty": None, "max_new_tokens": max_new_tokens}


def caption_batch(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    batch: Sequence[dict],
    prefixes: Sequence[str] | None = None,
    **generate_arguments: Any,
) -> list[str]:
    """Captions a few rows of the feature contract like [`generate_captions`]; captions continue the `prefixes`."""
    if is_guest(model.config):
        images = visual_arguments(batch)["images"]
        with torch.inference_mode():
            return caption_images_of(guest_of(model, processor), images, prefixes, **generate_arguments)
    inputs = processor(**visual_arguments(batch), text=list(prefixes) if prefixes is not None else None)
    generate_arguments = with_search(generate_arguments, processor)
    with torch.inference_mode():
        ids = cast(CaptioningForConditionalGeneration, model).generate(**inputs.to(model.device), **generate_arguments)
    return processor.batch_decode(ids, skip_special_tokens=True)


class CaptionEvaluation(Evaluation):
    """Captions of a split and their scores; CIDEr-D is `cider_d`. A result has `image_id` and `caption`."""

    @property
    def captions(self) -> list[str]:
        """One caption per image, in the order of the rows."""
        return [result["caption"] for result in self.results]

    def save(self, path: str | os.PathLike) -> None:
        """Writes the captions in the COCO result format, atomically."""
        write_output(path, json.dumps(list(self.results), ensure_ascii=False, indent=1) + "\n")


def evaluate_captioner(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    rows: Dataset,
    accelerator: Accelerator | None = None,
    *,
    metrics: Sequence[str] | None = None,
    language: str | None = None,
    extra_scores: ExtraScores | None = None,
    batch_size: int = 64,
    **generate_arguments: Any,
) -> CaptionEvaluation:
    """Captions every row like [`generate_captions`], and scores the captions against the captions of the row.

    The metrics are those of [`CaptionMetrics`], on words of a language (by default the model's), and those of the
    dataset.
    """
    units = caption_units(language or language_of(processor.tokenizer))
    metric = CaptionMetrics(metrics=metrics or CaptionMetrics.DEFAULT, tokenizer=units)
    captions = generate_captions(model, processor, rows, accelerator, batch_size=batch_size, **generate_arguments)
    is_main_process = accelerator is None or accelerator.is_main_process
    references = list(map(list, rows["captions"]))
    shared: list[Any] = [metric.compute(predictions=captions, references=references) if is_main_process else None]
    if accelerator is not None:
        broadcast_object_list(shared)
    scores: dict[str, float] = shared[0]
    if extra_scores is not None:

        def complete(indices: Sequence[int], prefixes: Sequence[str]) -> list[str]:
            options = {"prefixes": prefixes, "batch_size": batch_size, **greedily(extra_scores.completion_tokens)}
            return generate_captions(model, processor, rows.select(indices), accelerator, **options)

        scores |= extra_scores.compute(rows, captions, complete)
    ids = map(int, rows["image_id"])
    results = [{"image_id": image_id, "caption": text} for image_id, text in zip(ids, captions, strict=True)]
    return CaptionEvaluation(scores, results=results)


def caption_images(
    model: PreTrainedModel,
    processor: ProcessorMixin,
    images: Dataset | Iterable,
    names: Iterable[str],
    *,
    attention_folder: str | Path | None = None,
    reranker: "Reranker | None" = None,
    on_error: str = "raise",
    batch_size: int = 64,
    **generate_arguments: Any,
) -> Iterator[CaptionedImage]:
    """Captions images one batch at a time with [`CaptioningPipeline`].

    Args:
        images: rows of a `datasets.Dataset`, or an iterable of inputs of the pipeline, such as paths.
        names: name of each image in the results, and of its figure.
        attention_folder: folder for a figure of each image, `NAME.png`, with a heat map for each word.
        reranker: chooses among the `num_return_sequences` captions of an image; `images` must be a dataset or a list.
        on_error: `"raise"` an error for an image that cannot be read, or `"skip"` it.
        generate_arguments: `text`, the beginning of every caption, and arguments of `generate()`.

    Without a reranker, an image has one result for each distinct caption, the best first.
    """
    if attention_folder is not None:
        generate_arguments |= prepare_figures(attention_folder)
    if reranker is not None:
        generate_arguments["return_scores"] = True
    pipeline = CaptioningPipeline(model=model, processor=processor, batch_size=batch_size)
    sources: Any = images
    images = images if isinstance(images, Dataset) else iter(images)
    answers = pipeline(images, on_error=on_error, **generate_arguments)
    for number, ((name, file_name), captions) in enumerate(zip(with_file_names(names), answers, strict=True)):
        is_captioned = captions[0].get("error") is None
        if reranker is not None and is_captioned:
            texts, scores = zip(*((caption["generated_text"], caption["score"]) for caption in captions), strict=True)
            captions = [captions[reranker.order(sources[number], texts, scores)[0]]]
        drawn = None
        if attention_folder is not None and is_captioned:
            file = Path(attention_folder) / f"{file_name}.png"
            plot, of = (plot_frame_attention, "frames") if "frames" in captions[0] else (plot_word_maps, "image")
            if save_attention(captions[0], name, file, plot, (of, "words", "attention")):
                drawn = str(file)
        for rank, (text, answer) in enumerate({caption["generated_text"]: caption for caption in captions}.items()):
            scores = answer.get("score"), answer.get("word_scores")
            judgement = (answer.get(part) for part in ("confidence", "unlike_training", "doubt"))
            figure = drawn if rank == 0 else None
            yield CaptionedImage(name, text, answer.get("error"), rank, *scores, figure, *judgement)
