"""A task from outside the package: a small dual encoder, with dropout everywhere, under a contrastive objective.

python -m tests.training.toy_retrieval FOLDER key=value ...
"""

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch
import yaml
from safetensors.torch import save_model
from torch import nn
from torch.nn import functional
from transformers.utils import ModelOutput

from hf_ngsan.data import CaptionCollator, build_tokenizer, load_data
from hf_ngsan.training import Recipe, Stage, Task, run_task
from hf_ngsan.training.objectives.contrastive import Contrastive, ContrastiveSettings
from hf_ngsan.training.settings import EvaluationSettings, setting

DROPOUT, WIDTH, HEADS = 0.3, 16, 2


@dataclass
class Embeddings(ModelOutput):
    image_embeds: torch.FloatTensor | None = None
    text_embeds: torch.FloatTensor | None = None


class Encoder(nn.Module):
    """Self-attention over real tokens and their mean, of length 1."""

    def __init__(self):
        super().__init__()
        self.projections = nn.Linear(WIDTH, 3 * WIDTH, bias=False)  # that of keys has no gradient but noise
        self.dropout = nn.Dropout(DROPOUT)
        self.head = nn.Linear(WIDTH, WIDTH)

    def forward(self, states, mask):
        query, key, value = self.projections(self.dropout(states)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        rate = DROPOUT if self.training else 0.0
        attended = functional.scaled_dot_product_attention(
            query, key, value, mask[:, None, None].bool(), dropout_p=rate
        )
        states = self.dropout(states + attended.transpose(1, 2).flatten(2)) * mask[..., None]
        return functional.normalize(self.head(states.sum(1) / mask.sum(1, keepdim=True)), dim=-1)


class DualEncoder(nn.Module):
    def __init__(self, feature_size, vocab_size):
        super().__init__()
        self.regions, self.words = nn.Linear(feature_size, WIDTH), nn.Embedding(vocab_size, WIDTH)
        self.of_images, self.of_texts = Encoder(), Encoder()

    def forward(self, visual_features, attention_mask, labels, **kwargs):
        words = (labels != -100).long()
        return Embeddings(
            image_embeds=self.of_images(self.regions(visual_features), attention_mask),
            text_embeds=self.of_texts(self.words(labels.clamp(min=0)), words),
        )


class Processor:
    """Pads to the longest of each batch, so that padding differs between cuttings of a batch."""

    def __init__(self, tokenizer):
        from hf_ngsan import NGSANProcessor

        self.processor = NGSANProcessor(tokenizer=tokenizer)

    def __call__(self, **rows):
        return self.processor(**rows)


@dataclass(frozen=True)
class ToyEvaluation(EvaluationSettings):
    metric: str = setting("mean_rank", "lower is better")


@dataclass(frozen=True)
class ToyRecipe(Recipe):
    evaluation: ToyEvaluation = field(default_factory=ToyEvaluation)
    contrastive: ContrastiveSettings = field(default_factory=ContrastiveSettings)


class ToyRetrieval(Task):
    recipe_class = ToyRecipe
    unit = "pictures"
    greater_is_better = False

    def load_rows(self, split):
        return load_data(self.recipe.data.spec, split)

    def known_metrics(self, rows):
        return ["mean_rank"]

    def build(self, rows):
        captions = [caption for texts in rows["captions"] for caption in texts]
        tokenizer = build_tokenizer(captions, min_count=1)
        return DualEncoder(len(rows[0]["visual_features"][0]), len(tokenizer)), Processor(tokenizer)

    def stages(self, model, processor, rows):
        return [Stage("contrastive", Contrastive(self.recipe.contrastive), self.recipe.training)]

    def collator(self, processor):
        return CaptionCollator(processor, captions_per_image=self.recipe.model.get("captions", 1), seed=1)

    @torch.no_grad()
    def evaluate(self, model, processor, rows, accelerator):
        outputs = model(**self.collator(processor)([rows[index] for index in range(len(rows))]))
        similarities = outputs.text_embeds @ outputs.image_embeds.mT
        own = similarities.diagonal()[: len(rows), None] if len(similarities) == len(rows) else similarities[:, :1]
        return {"mean_rank": float((similarities >= own).float().sum(-1).mean())}

    def save(self, model, processor, folder):
        Path(folder).mkdir(exist_ok=True)
        save_model(model, str(Path(folder) / "model.safetensors"))


def toy_recipe(folder: Path, *overrides: str) -> ToyRecipe:
    sections = {
        "model": {},
        "data": {"spec": "scenes:size=40,validation=12,seed=4"},
        "training": {
            "output_dir": str(folder),
            "epochs": 1,
            "batch_size": 8,
            "learning_rate": 0.01,
            "warmup_epochs": 0,
            "tracker": None,
            "num_threads": 1,
        },
    }
    for override in overrides:
        name, _, value = override.partition("=")
        section, key = name.split(".")
        sections.setdefault(section, {})[key] = yaml.safe_load(value)
    return ToyRecipe.from_dict(sections)


def main():
    folder, *overrides = sys.argv[1:]
    result = run_task(ToyRetrieval(toy_recipe(Path(folder), *overrides)))
    print(json.dumps(result.history))


if __name__ == "__main__":
    main()
