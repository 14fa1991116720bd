"""A photograph that comes with matplotlib, captioned by the captioner that comes with this package."""

from pathlib import Path

from ..ground.packaged_models import CAPTIONER
from ..loading.models import find_model_folder
from ..loading.self_test import SelfTestError, run_self_test
from ..visualization import plot_word_maps, save_figure

PHOTOGRAPH = "grace_hopper.jpg"
"""Among matplotlib's sample data: Grace Hopper in uniform, photographed by James S. Davis in 1984."""


def caption_photograph(output: Path) -> None:
    """Tests the captioner, prints its caption of the photograph and draws where each of its words looked.

    Args:
        output: folder that gets `photograph.png`.

    Raises:
        MissingBackboneError: the backbone's weights (extra `photos`) are not installed.
        SelfTestError: the captioner computes something else than was recorded of it.
    """
    from matplotlib.cbook import get_sample_data
    from PIL import Image
    from transformers import pipeline

    folder = find_model_folder(CAPTIONER)
    captioner = pipeline("image-to-text", model=folder)  # type: ignore[call-overload]
    found = run_self_test(captioner.model, captioner.processor, folder)
    if not found.passed:
        raise SelfTestError(f"{CAPTIONER} {found}")
    print(f"{CAPTIONER} {found}")
    with Image.open(str(get_sample_data(PHOTOGRAPH, asfileobj=False))) as image:
        [answer] = captioner(image, return_attention=True)
        print(f"hf-ngsan caption {PHOTOGRAPH}   (trained on 6,000 photographs of Flickr8k)")
        print(f"  {answer['generated_text']}")
        save_figure(plot_word_maps(image, answer["words"], answer["attention"]), output / "photograph.png")
    print(f"Where each of its words looked: {output / 'photograph.png'}\n")
