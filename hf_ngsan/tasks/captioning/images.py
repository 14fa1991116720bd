"""Captions of image files and of rows of a dataset, one after the other, with figures of the attention.

```python
for found in caption_images(model, processor, ["photo.jpg"], ["photo.jpg"]):
    print(found.name, found.caption)
```
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset
from transformers import PreTrainedModel, ProcessorMixin

from ...io.files import with_file_names
from ...loading.pipelines import CaptioningPipeline
from ...visualization import plot_word_maps
from ..attention_figures import prepare_figures, save_attention
from .captioned_image import CaptionedImage

if TYPE_CHECKING:
    from ..retrieval.search import Reranker


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
    """Captions images as they come, a batch at a time, through [`CaptioningPipeline`].

    Args:
        model: a captioner in evaluation mode.
        processor: the model's.
        images: rows of a `datasets.Dataset`, or anything iterable of what the pipeline takes, such as paths.
        names: name of each image in the results, and of its figure.
        attention_folder: folder for a figure of each image, `NAME.png`, with a heat map for each word. An image whose
            caption has no words, or that is features without an image or boxes, gets none, and the log says so.
        reranker: chooses among the captions of an image, as many as `num_return_sequences`; then `images` are a dataset
            or a list.
        on_error: `"raise"` at an image that cannot be read, or `"skip"` it.
        batch_size: images captioned together.
        generate_arguments: `text`, the beginning of every caption, and arguments of `generate()`.

    Yields:
        A [`CaptionedImage`] for each image, in their order; with `num_return_sequences` and without a reranker one for
        each of its captions, the best first and none twice.

    Raises:
        ValueError: an image cannot be read, or the model does not take images of this kind.
        MissingPlotsError: figures are asked for and matplotlib is not installed.
        FileExistsError: the folder for figures is a file.
    """
    if attention_folder is not None:
        generate_arguments |= prepare_figures(attention_folder)
    if reranker is not None:
        generate_arguments["return_scores"] = True
    pipeline = CaptioningPipeline(model=model, processor=processor, batch_size=batch_size)
    seen: Any = images
    images = images if isinstance(images, Dataset) else iter(images)
    answers = pipeline(images, on_error=on_error, **generate_arguments)
    for number, ((name, file_name), of_image) in enumerate(zip(with_file_names(names), answers, strict=True)):
        is_captioned = of_image[0].get("error") is None
        if reranker is not None and is_captioned:
            texts, scores = zip(*((one["generated_text"], one["score"]) for one in of_image), strict=True)
            of_image = [of_image[reranker.order(seen[number], texts, scores)[0]]]
        drawn = None
        if attention_folder is not None and is_captioned:
            file = Path(attention_folder) / f"{file_name}.png"
            if save_attention(of_image[0], name, file, plot_word_maps, ("image", "words", "attention")):
                drawn = str(file)
        for rank, (caption, answer) in enumerate({one["generated_text"]: one for one in of_image}.items()):
            scores = answer.get("score"), answer.get("word_scores")
            judgement = answer.get("confidence"), answer.get("unlike_training")
            figure = drawn if rank == 0 else None
            yield CaptionedImage(name, caption, answer.get("error"), rank, *scores, figure, *judgement)
