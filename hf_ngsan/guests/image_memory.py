"""Images that are encoded once, however many captions are drawn, scored and trained for each.

```python
memory = ImageMemory(guest.image_encoder, num_images=4, keeps_graph=True)
with memory.active():
    model.generate(**inputs, num_return_sequences=6)  # encodes the four images
with memory.active(captions_per_image=5):
    model(**inputs, input_ids=captions)  # four images, twenty captions, and the graph of the first encoding
```

Inside the `with` block the image encoder of the model returns its first output again, with the rows of an image next
to each other. Keys and values that cross-attention makes of images are computed once for each image as well.
"""

import functools
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers.utils import ModelOutput

CROSS_ATTENTION = re.compile(r"crossattention\..*\b(key|value|c_attn)$")
"""Names of layers of BERT's and GPT-2's kind that see nothing but images."""


class ImageMemory:
    """The output of an image encoder.

    Args:
        model: of which the encoder is a part; not wrapped.
        encoder: called with images, or with several rows of each, next to each other.
        num_images: B.
        keeps_graph: whether the encoding has a graph, also where `generate()` builds none.
    """

    def __init__(self, model: torch.nn.Module, encoder: torch.nn.Module, num_images: int, keeps_graph: bool) -> None:
        self.encoder, self.num_images, self.keeps_graph = encoder, num_images, keeps_graph
        self.projections = [layer for name, layer in model.named_modules() if CROSS_ATTENTION.search(name)]
        self.output: Any = None

    @contextmanager
    def active(self, captions_per_image: int = 1) -> Iterator[None]:
        """Lets the model use the memory inside the `with` block; it is given each image once or `generate()` has
        repeated them.

        Args:
            captions_per_image: rows that an image gets where the model is given it once.
        """

        def remembered(forward: Callable, *args: Any, **kwargs: Any) -> Any:
            given = [*args, *kwargs.values()]
            rows = next(len(value) for value in given if torch.is_tensor(value)) * captions_per_image
            if self.output is None:
                with torch.set_grad_enabled(self.keeps_graph):
                    self.output = forward(
                        *map(self.once, args), **{name: self.once(value) for name, value in kwargs.items()}
                    )
            return repeated(self.output, rows // self.num_images)

        def projected(forward: Callable, states: torch.Tensor) -> torch.Tensor:
            each = len(states) // self.num_images
            return forward(states) if each == 1 else forward(states[::each].contiguous()).repeat_interleave(each, dim=0)

        changed = [(self.encoder, remembered), *((layer, projected) for layer in self.projections)]
        try:
            for module, function in changed:
                module.forward = functools.wraps(module.forward)(functools.partial(function, module.forward))
            yield
        finally:
            for module, _ in changed:
                del module.forward

    def once(self, value: Any) -> Any:
        return value[:: len(value) // self.num_images] if torch.is_tensor(value) else value


def repeated(output: Any, each: int) -> Any:
    """Returns an output of a model with each of its rows `each` times."""
    if torch.is_tensor(output):
        return output if each == 1 else output.repeat_interleave(each, dim=0)
    if isinstance(output, ModelOutput):
        return type(output)(**{name: repeated(value, each) for name, value in output.items()})
    return tuple(repeated(value, each) for value in output) if isinstance(output, tuple) else output
