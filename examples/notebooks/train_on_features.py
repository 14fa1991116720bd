# %% [markdown]
# # Train a captioner on your own features
#
# Features may come from any detector or backbone. This script uses synthetic scenes, so that it runs everywhere in one
# or two minutes on a CPU; replace the rows of the first cell with yours.

# %%
from datasets import Dataset, DatasetDict

from hf_ngsan.data import load_data
from hf_ngsan.loading.models import load_captioner
from hf_ngsan.tasks import load_training_config, train

NUM_IMAGES = 1000


def rows_of(split):
    """Yields rows with features (N, D), boxes (N, 4) divided by width and height, and captions."""
    for row in load_data(f"scenes:size={NUM_IMAGES},validation=50,test=50", split):
        yield {name: row[name] for name in ("image_id", "visual_features", "visual_boxes", "captions")}


# %% [markdown]
# ## Write the features
#
# N may differ between images, but D may not. `hf-ngsan inspect my-features` finds mistakes.

# %%
splits = {
    split: Dataset.from_generator(rows_of, gen_kwargs={"split": split}, cache_dir="cache")
    for split in ("train", "validation", "test")
}
DatasetDict(splits).save_to_disk("my-features")
print({split: len(rows) for split, rows in splits.items()})

# %% [markdown]
# ## Train
#
# `hf-ngsan train --config ngsan/scenes data.spec=features:my-features training.epochs=3` does the same. The config for
# photographs is `ngsan/flickr8k`; the paper's is `ngsan/ngsan`.

# %%
config = load_training_config(
    "ngsan/scenes",
    ["data.spec=features:my-features", "training.epochs=3", "evaluation.every_epochs=3", "training.output_dir=my-run"],
)
train(config)

# %% [markdown]
# ## Caption

# %%
model, processor = load_captioner("my-run")
rows = load_data("features:my-features", "test").select(range(3))
inputs = processor(
    visual_features=[row["visual_features"] for row in rows], visual_boxes=[row["visual_boxes"] for row in rows]
)
captions = processor.batch_decode(model.generate(**inputs, num_beams=3), skip_special_tokens=True)
for row, caption in zip(rows, captions, strict=True):
    print(f"{caption}   (one reference: {row['captions'][0]})")
