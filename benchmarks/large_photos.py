"""Time to decode a large JPEG photograph for a model with small images, against decoding at full size.

A generated photograph of 4000 x 3000 pixels is read and resized to 352 x 352 pixels, at full size and at the smallest
scale that keeps twice as many pixels per side; both take turns. Also prints the difference of the resized pixels.

    python benchmarks/large_photos.py
"""

import argparse
import io
import time

import numpy as np
from paired_steps import describe, in_turns, ratios
from PIL import Image

from hf_ngsan.models.image_processing_captioning import load_image

SIDE = 352


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=2, default=[4000, 3000], metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--pairs", type=int, default=15, help="(%(default)s)")
    options = parser.parse_args()
    noise = np.random.default_rng(0).integers(0, 256, (options.size[1] // 16, options.size[0] // 16, 3), np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).resize(options.size, Image.Resampling.BICUBIC).save(file, "JPEG", quality=92)
    pixels = {}

    def read(name: str, least_side: int | None) -> float:
        started_at = time.perf_counter()
        image = load_image(file.getvalue(), least_side=least_side).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        pixels[name] = np.asarray(image, int)
        return 1000 * (time.perf_counter() - started_at)

    took = in_turns({"whole": lambda: read("whole", None), "reduced": lambda: read("reduced", SIDE)}, options.pairs)
    for name, values in took.items():
        print(f"{name + ', ms':16}{describe(values)}")
    print(f"{'reduced / whole':16}{describe(ratios(took))}")
    difference = np.abs(pixels["whole"] - pixels["reduced"])
    print(f"pixels differ by {difference.mean():.2f} on average, {difference.max()} at most")


if __name__ == "__main__":
    main()
