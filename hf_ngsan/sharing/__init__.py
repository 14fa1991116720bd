"""Sharing of models on the Hub: the folder of a checkpoint, its card, and its upload.

```python
write_checkpoint(model, processor, "folder", "user/captioner", facts=known_facts("runs/scenes"))
upload_checkpoint("folder", "user/captioner")
```
"""

from .upload import UploadError, push_to_hub, upload_checkpoint
from .upload_folder import check_checkpoint, write_checkpoint
