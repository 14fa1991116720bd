"""Captioning, features and embeddings of collections beyond one machine.

```python
photos = ray.data.read_binary_files("s3://bucket/photos", include_paths=True)
photos.map_batches(Captioner, batch_size=64, concurrency=8, num_gpus=1).write_parquet("s3://bucket/captions")
```

Names are imported when used, so that importing this package imports nothing heavy.
"""

from typing import TYPE_CHECKING

from ..io.lazy import lazy_names

if TYPE_CHECKING:
    from .columns import Captioner, Embedder, ImageEncoder

__getattr__, __dir__, __all__ = lazy_names(__name__)
