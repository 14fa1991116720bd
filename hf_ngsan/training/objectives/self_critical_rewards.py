"""Rewards for self-critical training: a weighted sum of CIDEr-D, BLEU-4, METEOR, CLIPScore and functions."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from ...data import build_tokenizer
from ...io import import_user_module
from ...languages import ENGLISH
from ...metrics import CiderDReward, DocumentFrequency
from ...metrics.cider import PreparedReferences
from ...metrics.clip_score import ClipScore, cosines
from ...metrics.evaluation import bleu_scores
from ...metrics.meteor import PreparedCaption, meteor_scores, shared_scorer
from ...metrics.ngrams import ScoredGroups, count_ngrams, cut_sequences, expand_ranges
from ...metrics.tokenization import PTBTokenizer

RewardFunction = Callable[[list[str], list[list[str]]], Sequence[float] | np.ndarray | torch.Tensor]


class RewardError(ValueError):
    """A reward that cannot be computed; the message has its name, the reason and a remedy."""


class CaptionRewards:
    """Sums weighted rewards of sampled captions (Rennie et al., *Self-critical Sequence Training*, CVPR 2017).

    A caption ends with its first end token; later tokens do not count. In CIDEr-D and BLEU-4, the end token counts as a
    word, so that an unfinished caption loses the n-grams of a proper end. With `end_token=False`, it is left out of
    samples, references and document frequencies, as in RSTNet's released trainer. Rewards of the two modes are not
    comparable (Hu et al. 2023, "SacreEOS"). Start and padding tokens never count, and an unknown word of a sample
    matches nothing, not even an unknown word of a reference.

    - `cider_d`: eq. 4 of Vedantam et al., CVPR 2015, on the scale 0 to 10, with the document frequencies of the
      references (see [`~hf_ngsan.metrics.CiderDReward`]);
    - `bleu_4`: BLEU-4 (Papineni et al., ACL 2002) of the single caption, on the scale 0 to 1;
    - `meteor`: METEOR 1.5 of the single caption, on the scale 0 to 1 (see [`MeteorReward`]);
    - `clip_score`: similarity of caption and image, on the scale 0 to 2.5 (see [`ClipReward`]).

    The first two are 0 for an empty caption (without a word before its end).

    Args:
        references: reference captions of each training row, as text; captions without words are ignored.
        weights: weights of the rewards above; a reward with weight 0 is not computed.
        functions: user-defined rewards by name, with their weights. A function gets R captions without special tokens
            (`list[str]`) and the references of each (`list[list[str]]`); it returns R finite numbers.

    Raises:
        RewardError: a row without references, unknown names, or no weight other than 0.

    Example:

    ```python
    >>> import torch
    >>> from hf_ngsan.data import build_tokenizer
    >>> from hf_ngsan.training.objectives import CaptionRewards
    >>> references = [["a cat on a mat"], ["two dogs run"]]
    >>> tokenizer = build_tokenizer([text for texts in references for text in texts], min_count=1)
    >>> rewards = CaptionRewards(references, tokenizer, {"cider_d": 1.0})
    >>> samples = torch.tensor(tokenizer(["two dogs run", "a cat run"], padding=True)["input_ids"])
    >>> rewards(samples, torch.tensor([1, 1])).round(decimals=2)
    tensor([10.0000,  1.6700])

    ```
    """

    NAMES = ("cider_d", "bleu_4", "meteor", "clip_score")

    def __init__(
        self,
        references: Sequence[Sequence[str]],
        tokenizer: PreTrainedTokenizerBase,
        weights: Mapping[str, float],
        functions: Mapping[str, tuple[RewardFunction, float]] | None = None,
        end_token: bool = True,
        clip_score: "ClipReward | None" = None,
    ):
        functions = functions or {}
        unknown = [*(weights.keys() - self.NAMES), *(functions.keys() & self.NAMES)]
        if unknown:
            raise RewardError(
                f"Unknown reward {unknown[0]!r}; choose from {', '.join(self.NAMES)}, and functions of other names, "
                "such as package.module:function."
            )
        numbers = {**weights, **{name: weight for name, (_, weight) in functions.items()}}
        if not any(numbers.values()) or not all(map(math.isfinite, numbers.values())):
            raise RewardError(f"The weights of the rewards must be finite and not all 0, not {numbers}.")
        self.clip_score: Any = clip_score
        self.weights = {name: float(weight) for name, weight in numbers.items() if weight}
        self.functions = {name: function for name, (function, weight) in functions.items() if weight}
        self.tokenizer: Any = tokenizer
        self.eos_token_id: int = self.tokenizer.eos_token_id
        ignored = {self.tokenizer.pad_token_id, self.tokenizer.bos_token_id} - {None, self.eos_token_id}
        self.ignored_tokens = tuple(ignored if end_token else {*ignored, self.eos_token_id})
        self.texts = [list(captions) for captions in references]
        self.references = self.prepare_references()
        if "cider_d" in self.weights:
            rows = np.repeat(np.arange(len(self.references)), self.references.number)
            levels, special = count_ngrams(self.references.captions), (self.eos_token_id, self.ignored_tokens)
            self.cider_d = CiderDReward(DocumentFrequency(levels, rows, None, *special))
        if "meteor" in self.weights:
            self.meteor = MeteorReward(self.texts)

    def __call__(self, token_ids: torch.Tensor, image_indices: torch.Tensor) -> torch.Tensor:
        """Returns float32 rewards `(R,)` of samples `(R, T)`; `image_indices` `(R,)` are their rows of references."""
        if self.clip_score is not None:
            self.clip_score.metric.encoder.model.to(token_ids.device)
        parts = self.parts(token_ids, image_indices)
        weighted = (self.weights[name] * values for name, values in parts.items())
        total = sum(weighted, start=torch.zeros((), dtype=torch.float64))
        return total.to(token_ids.device, torch.float32)

    def parts(
        self, token_ids: torch.Tensor, image_indices: torch.Tensor, captions: list[str] | None = None
    ) -> dict[str, torch.Tensor]:
        """Returns the unweighted rewards by name, float64 `(R,)` on the CPU."""
        ids, images = token_ids.detach().cpu(), image_indices.detach().cpu().numpy()
        words = cut_sequences(ids, self.eos_token_id, (*self.ignored_tokens, self.eos_token_id))
        known = ids
        if self.tokenizer.unk_token_id is not None:
            known = ids.masked_fill(ids == self.tokenizer.unk_token_id, len(self.tokenizer))
        parts = {}
        if "cider_d" in self.weights:
            parts["cider_d"] = self.cider_d(known, self.references, images)
        if "bleu_4" in self.weights:
            parts["bleu_4"] = self.bleu_4(known, images)
        has_words = torch.from_numpy(words.lengths > 0)
        parts = {name: torch.where(has_words, values, 0.0) for name, values in parts.items()}
        if captions is None and (self.functions or {"meteor", "clip_score"} & self.weights.keys()):
            parted = np.split(words.words, np.cumsum(words.lengths)[:-1]) if len(words) else []
            captions = self.tokenizer.batch_decode([ids.tolist() for ids in parted], skip_special_tokens=True)
        captions = captions or []
        if "meteor" in self.weights:
            parts["meteor"] = self.meteor(captions, images)
        if "clip_score" in self.weights:
            parts["clip_score"] = self.clip_score(captions, images)
        references = [self.texts[image] for image in images] if self.functions else []
        return parts | {key: call_function(key, self.functions[key], captions, references) for key in self.functions}

    def prepare_references(self) -> PreparedReferences:
        flat = [text for texts in self.texts for text in texts]
        ids = self.tokenizer(flat, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
        rows = np.repeat(np.arange(len(self.texts)), [len(texts) for texts in self.texts])
        has_words = np.fromiter(map(bool, ids), dtype=bool, count=len(ids))
        number = np.bincount(rows[has_words], minlength=len(self.texts))
        if not number.all():
            row = f"Row {number.argmin()} of the training data"
            raise RewardError(f"{row} has no words in its captions; add a caption or leave the row out.")
        ended = [[*words, self.eos_token_id] for words in ids if words]
        captions = cut_sequences(ended, self.eos_token_id, self.ignored_tokens)
        return PreparedReferences(captions, np.cumsum(number) - number, number)

    def bleu_4(self, token_ids: torch.Tensor, images: np.ndarray) -> torch.Tensor:
        # Each candidate counts as a separate image, with a copy of the references.
        references = self.references
        owners, captions = expand_ranges(references.first[images], references.number[images])
        candidates = cut_sequences(token_ids, self.eos_token_id, self.ignored_tokens)
        groups = ScoredGroups(references.captions.take(captions), owners, candidates, np.arange(len(images)))
        _, scores = bleu_scores(groups)
        return torch.from_numpy(scores[:, 3])


class TextRewards(CaptionRewards):
    """Rewards of captions with any tokens, computed on words; `decode` returns the words of `(R, T)` ids."""

    def __init__(
        self,
        references: Sequence[Sequence[str]],
        decode: Callable[[torch.Tensor], list[str]],
        end_token_id: int,
        language: str = ENGLISH,
        **options: Any,
    ) -> None:
        self.decode, self.end_token_id = decode, end_token_id
        tokenizer = build_tokenizer([text for texts in references for text in texts], min_count=1, language=language)
        super().__init__(references, tokenizer, **options)

    def parts(
        self, token_ids: torch.Tensor, image_indices: torch.Tensor, captions: list[str] | None = None
    ) -> dict[str, torch.Tensor]:
        captions = self.decode(token_ids)
        ends = (token_ids == self.end_token_id).any(-1).tolist()
        ids = self.tokenizer(captions, add_special_tokens=False, verbose=False)["input_ids"]
        words = [torch.tensor([*caption, *[self.eos_token_id] * end]) for caption, end in zip(ids, ends, strict=True)]
        padded = pad_sequence(words, batch_first=True, padding_value=self.tokenizer.pad_token_id)
        return super().parts(padded.long(), image_indices, captions)


class MeteorReward:
    """METEOR of captions of training rows, each scored separately (see [`~hf_ngsan.metrics.Meteor`])."""

    def __init__(self, references: Sequence[Sequence[str]]) -> None:
        self.references, self.scorer = references, shared_scorer()
        self.tokenizer = PTBTokenizer()  # one caption at a time, so that rewards do not depend on the batch
        self.references_of = lru_cache(maxsize=2**14)(self.prepare_references)

    def __call__(self, captions: list[str], image_indices: np.ndarray) -> torch.Tensor:
        """Returns float64 `(R,)` for R captions of the rows `image_indices`; duplicates are scored once."""
        pairs = list(zip(captions, image_indices.tolist(), strict=True))
        distinct = {pair: place for place, pair in enumerate(dict.fromkeys(pairs))}
        prepared = self.scorer.prepare(self.tokenizer.tokenize([caption for caption, _ in distinct]))
        statistics = self.scorer.statistics(prepared, [self.references_of(row) for _, row in distinct])
        return torch.from_numpy(meteor_scores(statistics)[[distinct[pair] for pair in pairs]])

    def prepare_references(self, row: int) -> list[PreparedCaption]:
        return self.scorer.prepare(self.tokenizer.tokenize(self.references[row]))


class ClipReward:
    """CLIPScore of captions of training images (Hessel et al. 2021; Cho et al. 2022); each image is embedded once."""

    def __init__(self, metric: ClipScore, images: Sequence[Mapping[str, Any]]) -> None:
        self.metric, self.images = metric, images
        self.known: dict[int, np.ndarray] = {}

    def __call__(self, captions: list[str], image_indices: np.ndarray) -> torch.Tensor:
        """Returns float64 `(R,)` for R captions of the rows `image_indices`."""
        for row in set(image_indices.tolist()) - self.known.keys():
            self.known[row] = self.metric.embed_images([self.images[row]["image"]])[0]
        images = np.stack([self.known[row] for row in image_indices.tolist()])
        return torch.from_numpy(self.metric.weight * cosines(self.metric.embed_texts(captions), images))


def load_reward_function(name: str) -> RewardFunction:
    """Imports a user-defined reward function, `package.module:function`."""
    module_name, _, attribute = name.partition(":")
    return getattr(import_user_module(module_name, f"Reward function {name}"), attribute)


def call_function(
    name: str, function: RewardFunction, captions: list[str], references: list[list[str]]
) -> torch.Tensor:
    """Returns the rewards of a user-defined function, float64 `(R,)`; raises a RewardError for invalid rewards."""
    returned = function(list(captions), [list(texts) for texts in references])
    if isinstance(returned, torch.Tensor):
        returned = returned.detach().cpu().double()  # NumPy has no bfloat16
    values = np.asarray(returned, dtype=np.float64)
    if values.shape != (len(captions),) or not (np.abs(values) <= np.finfo(np.float32).max).all():
        expected = f"{len(captions)} finite numbers, one for each caption"
        raise RewardError(f"Reward function {name} must return {expected}, not {returned!r:.200}.")
    return torch.from_numpy(values)
