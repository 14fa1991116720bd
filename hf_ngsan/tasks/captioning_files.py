"""Captions image files with the ONNX graphs in a captioner's folder, without torch and transformers."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..exporting.captioner import Encoded, ExportedCaptioner, is_one_of
from ..exporting.onnx_folder import open_dual_encoder
from ..io.packaged import find_model_folder
from ..loading.calibration import Calibration
from ..models.images import load_image


class CaptionedImage(NamedTuple):
    """The result for an image: its caption, or the reason for skipping it; parts that were not requested are `None`."""

    name: str
    caption: str | None
    error: str | None
    rank: int = 0  # rank among the captions of the image
    score: float | None = None  # mean log-probability of its tokens
    words: list[tuple[str, float]] | None = None  # words with their log-probabilities
    figure: str | None = None  # file with the figure of its attention
    confidence: float | None = None  # probability that the caption is right
    unlike_training: bool | None = None  # whether the image is unlike the captioner's training images
    doubt: str | None = None  # warning for a doubtful caption


def skipped_error(error: str, skips: bool) -> str:
    """Returns why an image was skipped; raises a ValueError unless `skips` is true."""
    if not skips:
        raise ValueError(f"{error.rstrip('.')}; --skip-errors skips such images.")
    return error


IMAGES_AT_ONCE = 16  # more images are not faster and need more memory


def caption_files(
    captioner: ExportedCaptioner,
    paths: Sequence[str],
    *,
    batch_size: int = IMAGES_AT_ONCE,
    with_scores: bool = False,
    judge: "GraphJudge | None" = None,
    **search: Any,
) -> Iterator[CaptionedImage]:
    """Yields the caption of each file or URL, in order, or the reason why it could not be read."""
    size = min(batch_size, IMAGES_AT_ONCE)
    image_side = max(captioner.settings["image"][side] for side in ("height", "width"))
    for start in range(0, len(paths), size):
        captioned: dict[int, CaptionedImage] = {}
        images: dict[int, Any] = {}
        for number in range(start, min(start + size, len(paths))):
            try:
                images[number] = load_image(paths[number], f"image {number}", image_side)
            except ValueError as error:
                captioned[number] = CaptionedImage(paths[number], None, str(error))
        if images:
            inputs = captioner.prepare(list(images.values()))
            encoded = captioner.encode(inputs)
            ids = captioner.generate(encoded, **search)
            captions = captioner.words.decode(ids)
            scores: list[Any] = [(None, None)] * len(ids)
            judgements: list[dict[str, Any]] = [{}] * len(ids)
            if with_scores or judge is not None:
                scores = scores_of(captioner, encoded, ids)
            if judge is not None:
                judgements = judge(inputs, captions, [score for score, _ in scores])
            for number, caption, (score, words), judgement in zip(images, captions, scores, judgements, strict=True):
                captioned[number] = CaptionedImage(paths[number], caption, None, score=score, words=words, **judgement)
        yield from (captioned[number] for number in sorted(captioned))


class GraphJudge:
    """Judges captions like [`~hf_ngsan.loading.confidence.Confidence`], with ONNX graphs.

    Raises a ValueError if the graphs of the dual encoder are missing or of another version.
    """

    def __init__(self, calibration: Calibration) -> None:
        encoders = open_dual_encoder(find_model_folder(calibration.dual_encoder))
        if encoders is None or encoders[1].fingerprint != calibration.fingerprint:
            raise ValueError(f"{calibration.dual_encoder} has no ONNX graphs of the version used for the calibration.")
        self.calibration, self.encoders = calibration, encoders

    def __call__(
        self, inputs: dict[str, np.ndarray], captions: Sequence[str], scores: Sequence[float]
    ) -> list[dict[str, Any]]:
        """Returns `confidence`, `unlike_training` and `doubt` of each caption, from the inputs of the captioner."""
        image_encoder, text_encoder = self.encoders
        images = image_encoder.embed(inputs)
        texts = map(text_encoder.embed, captions)  # None for a caption without words, which matches no image
        pairs = zip(images, texts, strict=True)
        similarities = [0.0 if text is None else float(image @ text[0]) for image, text in pairs]
        return self.calibration.judge(images, scores, np.array(similarities))


def scores_of(
    captioner: ExportedCaptioner, encoded: Encoded, ids: np.ndarray
) -> list[tuple[float, list[tuple[str, float]]]]:
    """Returns score and word scores of captions `(B, length)`, like [`~hf_ngsan.models.text_scores.text_scores`]."""
    is_end = is_one_of(ids[:, 1:], captioner.decoding["eos_token_ids"])
    lengths = np.where(is_end.any(-1), is_end.argmax(-1) + 1, is_end.shape[1])
    ids = ids[:, : 1 + lengths.max()]
    all_scores = captioner.log_probabilities(encoded, ids[:, :-1])
    token_scores = np.take_along_axis(all_scores, ids[:, 1:, None], axis=-1)[..., 0]
    vocabulary: Any = captioner.words.vocabulary
    caption_scores = []
    for tokens, length, values in zip(ids[:, 1:].tolist(), lengths.tolist(), token_scores.tolist(), strict=True):
        pairs = list(zip(tokens, values, strict=True))[:length]
        words = [(vocabulary[token], value) for token, value in pairs if token not in captioner.words.special]
        caption_scores.append((sum(values[:length]) / max(length, 1), words))
    return caption_scores
