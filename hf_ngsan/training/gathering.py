"""Work split among the processes of a run, and tensors gathered from them.

```python
map_sharded(lambda indices: texts_of(rows.select(indices)), len(rows), batch_size=64, accelerator=accelerator)
```
"""

from collections.abc import Callable
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object

from ..io.progress_display import ProgressDisplay


def gather_rows(accelerator: Accelerator, tensor: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Concatenates the tensors `(n, ...)` of all processes, whose n may differ, in the order of the processes.

    Returns:
        The whole tensor, without a graph and equal in every process, and the index in it of this process's first row.
    """
    if accelerator.num_processes == 1:
        return tensor.detach(), 0
    lengths = accelerator.gather(torch.tensor([len(tensor)], device=tensor.device)).tolist()
    padded = tensor.new_zeros(max(lengths), *tensor.shape[1:])
    padded[: len(tensor)] = tensor.detach()
    parts = accelerator.gather(padded[None])
    whole = torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])
    return whole, sum(lengths[: accelerator.process_index])


def map_sharded(
    work: Callable[[range], list],
    num_items: int,
    batch_size: int,
    accelerator: Accelerator | None = None,
    description: str = "evaluating",
) -> list:
    """Maps items to results in batches that processes take in turn.

    The batches, and so the results, are the same for any number of processes.

    Args:
        work: returns one result for each index of a range.
        num_items: number of items.
        batch_size: length of a range; the last may be shorter.
        accelerator: accelerator of the processes that share the work.
        description: name of the work in the progress display.

    Returns:
        All results in the order of the items, in every process.
    """
    num_processes = accelerator.num_processes if accelerator else 1
    process_index = accelerator.process_index if accelerator else 0
    starts = range(0, num_items, batch_size)[process_index::num_processes]
    own: list[tuple[int, Any]] = []
    with ProgressDisplay(description, len(starts), unit="batches", shown=process_index == 0) as display:
        for number, start in enumerate(starts, start=1):
            indices = range(start, min(start + batch_size, num_items))
            own += zip(indices, work(indices), strict=True)
            display.update(number)
    shared = gather_object(own) if accelerator else own
    return [result for _, result in sorted(shared, key=lambda item: item[0])]
