# %% [markdown]
# # Caption a photograph and explain the caption
#
# This script needs the extras `photos` and `plots`, and no network. Run it as a script or cell by cell.

# %%
import matplotlib.cbook
from PIL import Image
from transformers import pipeline

import hf_ngsan  # registers the models with transformers
from hf_ngsan.loading.models import load_model
from hf_ngsan.visualization import explain_match, plot_word_maps, save_figure

photograph = matplotlib.cbook.get_sample_data("grace_hopper.jpg", asfileobj=False)  # or the path of your photograph
image = Image.open(photograph).convert("RGB")

# %% [markdown]
# ## Captions and their confidence

# %%
captioner = pipeline("image-to-text", model=hf_ngsan.packaged_model("ngsan-photos"))
for answer in captioner(image, num_beams=3, num_return_sequences=3, return_scores=True):
    print(f"{answer['score']:.2f}  {answer['generated_text']}")

[answer] = captioner(image, return_attention=True, return_confidence=True)
print(f"confidence {answer['confidence']:.2f}, unlike the training images: {answer['unlike_training']}")

# %% [markdown]
# ## Attention of each word
#
# `answer["attention"]` has a map `(height, width)` for each word: the cross-attention, averaged over layers and heads.

# %%
figure = plot_word_maps(image, answer["words"], answer["attention"])
print(save_figure(figure, "words.png"))

# %% [markdown]
# ## Similarity of two sentences, by head of a dual encoder
#
# The similarity is a sum over pairs of heads; `shares` contains the terms.

# %%
model, processor = load_model("mhsan-photos", "retrieval")
for text in (answer["generated_text"], "two dogs run in the snow"):
    match = explain_match(model.eval(), processor.tokenizer, processor(images=image, text=text))
    strongest = match.shares.sum(1)[:-1].argmax()
    print(f"{match.similarity:.3f}  {text}  (most from head {strongest + 1} of the image)")
