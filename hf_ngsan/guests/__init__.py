"""Captioners and dual encoders of transformers itself (BLIP, GIT, CLIP, ...), described once each.

```python
model, processor = load_model("Salesforce/blip-image-captioning-base", "captioning")
guest = guest_of(model, processor)
inputs = guest.inputs([image], ["a photo of"])
guest.decode(model.generate(**inputs), inputs)
```

Names are imported when used.
"""

from typing import TYPE_CHECKING

from ..io import lazy_names

if TYPE_CHECKING:
    from .captioners import Guest, guest_of, register_guest
    from .dual_encoders import DualEncoder, dual_encoder_of

__getattr__, __dir__, __all__ = lazy_names(__name__)
