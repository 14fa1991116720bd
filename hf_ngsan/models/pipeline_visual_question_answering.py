"""`pipeline("visual-question-answering")` in a checkpoint; transformers 5 has no such pipeline.

```python
answerer = pipeline("visual-question-answering", model="answerer", trust_remote_code=True)
answerer("photo.jpg", question="what animal is it?")  # [{"answer": "dog", "score": 0.81}, ...]
```
"""

from collections.abc import Mapping
from typing import Any

import torch

from .pipeline_image_to_text import ImageToTextPipeline


class VisualQuestionAnsweringPipeline(ImageToTextPipeline):
    """Answers questions about images.

    Call arguments:
        inputs: a mapping with `question` and the keys of an input of [`ImageToTextPipeline`], or an image.
        question (`str`, *optional*): the question about all inputs; `question` in an input takes precedence.
        top_k (`int`, defaults to 5): maximum number of answers.

    Returns:
        For one input, a list of `{"answer": str, "score": float}`, the best first; each score is between 0 and 1, and
        they do not sum to 1. For a list of inputs, a list of such lists; for other collections, an iterator.
    """

    def _sanitize_parameters(  # type: ignore[override]
        self, question: str | None = None, top_k: int | None = None
    ) -> tuple[dict, dict, dict]:
        return {} if question is None else {"text": question}, {} if top_k is None else {"top_k": top_k}, {}

    def __call__(  # type: ignore[override]
        self, inputs: Any, question: str | None = None, **kwargs: Any
    ) -> Any:
        return super().__call__(inputs, question=question, **kwargs)

    def preprocess(self, input_: Any, text: str = "") -> dict:  # type: ignore[override]
        row = input_ if isinstance(input_, Mapping) else {"image": input_}
        return {"text": row.get("question") or text, **self.read(row)}

    def _forward(self, input_tensors: dict, top_k: int = 5) -> dict[str, torch.Tensor]:  # type: ignore[override]
        scores = self.model(**self.make_batch(input_tensors)).logits.float().sigmoid()
        best = scores.topk(min(top_k, scores.shape[-1]))
        return {"scores": best.values, "answers": best.indices}

    def postprocess(self, model_outputs: dict, **postprocess_parameters: Any) -> list[dict]:
        labels = self.model.config.id2label
        [best] = zip(model_outputs["scores"].tolist(), model_outputs["answers"].tolist(), strict=True)
        return [{"answer": labels[answer], "score": score} for score, answer in zip(*best, strict=True)]


__all__ = ["VisualQuestionAnsweringPipeline"]
