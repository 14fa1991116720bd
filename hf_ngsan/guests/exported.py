"""Exported dual encoders: both towers as ONNX graphs, run by ONNX Runtime, for an index and for search.

```python
model, processor = load_model("exported", "retrieval")  # a folder of hf-ngsan export
dual_encoder_of(model, processor).embed_texts(...)
```

The folder has `image.onnx`, `text.onnx`, the processor, the model's config.json, and `dual_encoder.json` with the sizes
of the graphs.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedConfig

from ..data.vocabulary import with_words
from ..io.fields import read_fields, read_json_or_none
from ..io.files import sha256
from ..io.messages import one_sentence
from ..registry import own_model_types
from .dual_encoders import DualEncoder

SETTINGS = "dual_encoder.json"
TOWERS = ("image", "text")


@dataclass(frozen=True)
class ExportedSettings:
    """The contents of `dual_encoder.json`.

    Attributes:
        dimension: of the embeddings.
        longest_text: tokens that the text graph takes, special ones included.
        fixed_length: whether every text is padded to that length.
    """

    dimension: int
    longest_text: int
    fixed_length: bool


class ExportedDualEncoder(DualEncoder):
    """An exported dual encoder with its processor."""

    @property
    def longest_text(self) -> int:
        return self.model.settings.longest_text

    @property
    def dimension(self) -> int:
        return self.model.settings.dimension

    def text_inputs(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        tokenizer, is_own = self.processor.tokenizer, self.model.config.model_type in own_model_types()
        padding = "max_length" if self.model.settings.fixed_length else "longest"
        texts = with_words(tokenizer, texts) if is_own else list(texts)
        return dict(
            tokenizer(texts, padding=padding, truncation=True, max_length=self.longest_text, return_tensors="pt")
        )


class ExportedModel(nn.Module):
    """The two graphs of an exported dual encoder, with the interface that commands need of a model.

    Args:
        folder: that `hf-ngsan export` wrote.
        config: of the model that was exported.

    Raises:
        ValueError: ONNX Runtime is not installed, or a file is missing or damaged.
    """

    description = ExportedDualEncoder
    checksum: torch.Tensor

    def __init__(self, folder: str | Path, config: PreTrainedConfig) -> None:
        super().__init__()
        try:
            import onnxruntime
        except ImportError:
            raise ValueError(
                f'{folder} is an exported dual encoder, which needs ONNX Runtime; pip install "hf-ngsan[export]".'
            ) from None
        self.config, self.name_or_path = config, str(folder)
        digest = hashlib.sha256()
        try:
            self.settings = read_fields(ExportedSettings, read_json_or_none(Path(folder) / SETTINGS))
            self.sessions = {}
            for tower in TOWERS:
                for file in sorted(Path(folder).glob(f"{tower}.onnx*")):  # with its weights, if they are beside it
                    digest.update(bytes.fromhex(sha256(file)))
                path = str(Path(folder) / f"{tower}.onnx")
                self.sessions[tower] = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime says in many ways that a file is damaged
            raise ValueError(f"{folder} is damaged ({one_sentence(error):.200}); export it again.") from error
        # Among the weights, so that the fingerprint of an index is that of these very graphs.
        self.register_buffer("checksum", torch.tensor(list(digest.digest()), dtype=torch.uint8))

    device = torch.device("cpu")
    dtype = torch.float32

    def get_image_features(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Returns the features of images, `(images, dimension)`."""
        return self.run("image", inputs)

    def get_text_features(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Returns the features of texts, `(texts, dimension)`."""
        return self.run("text", inputs)

    def run(self, tower: str, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        session = self.sessions[tower]
        taken = {one.name: inputs[one.name].cpu().numpy() for one in session.get_inputs()}
        return torch.from_numpy(session.run(None, taken)[0])


def is_exported(folder: str | Path) -> bool:
    """Returns whether a folder has an exported dual encoder."""
    return (Path(folder) / SETTINGS).is_file()
