"""Estimated bytes, machine-hours and cost of captioning, features and search for very many images.

    python benchmarks/scale.py
    python benchmarks/scale.py --images 5e9 --captions-per-second 300 --price 0.5    # for example, for a GPU

Rates are for one worker; the defaults are those of a CPU thread with PyTorch in docs/speed.md. The price per hour is an
assumption.
"""

import argparse

CELLS, CHANNELS, HALF = 121, 352, 2
"""Values per image of EfficientNet-Lite2 at 352 pixels; bytes of float16."""
CAPTION_BYTES, THUMBNAIL_BYTES = 60, 7_500
"""Bytes of a caption with its score, and of a thumbnail of 160 pixels (754 MB for 100,000)."""
UNITS = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=float, nargs="+", default=[1e6, 1e9, 1e10], metavar="N", help="(1e6 1e9 1e10)")
    parser.add_argument(
        "--dimension", type=int, default=512, help="dimension of embeddings (%(default)s, as in mhsan-photos)"
    )
    parser.add_argument(
        "--features-per-second", type=float, default=40.0, metavar="X", help="rate of a worker (%(default)s)"
    )
    parser.add_argument(
        "--captions-per-second", type=float, default=29.0, metavar="X", help="rate of a worker (%(default)s)"
    )
    parser.add_argument(
        "--price", type=float, default=0.04, metavar="X", help="price of an hour of a worker (%(default)s)"
    )
    return parser.parse_args()


def size(number: float) -> str:
    unit, name = next((unit for unit in UNITS if number >= unit[0]), UNITS[-1])
    return f"{number / unit:.3g} {name}"


def plan(options: argparse.Namespace) -> dict[str, list[str]]:
    """Returns a row of cells for each quantity, one cell for each number of images."""

    def hours(rate: float) -> list[str]:
        return [f"{count / rate / 3600:,.0f} ({count / rate / 3600 * options.price:,.0f})" for count in options.images]

    def sizes(each: float) -> list[str]:
        return [size(count * each) for count in options.images]

    return {
        "features, worker-hours (cost)": hours(options.features_per_second),
        "captions with 3 beams, worker-hours (cost)": hours(options.captions_per_second),
        "embeddings, worker-hours (cost)": hours(options.features_per_second),
        "features in float16": sizes(CELLS * CHANNELS * HALF),
        "captions": sizes(CAPTION_BYTES),
        "thumbnails": sizes(THUMBNAIL_BYTES),
        "embeddings in float16": sizes(options.dimension * HALF),
        "embeddings with one bit per dimension": sizes(options.dimension / 8),
    }


def main() -> None:
    options = parse_arguments()
    heads = [f"{count:.0e}".replace("e+0", "e").replace("e+", "e") for count in options.images]
    print(f"| images | {' | '.join(heads)} |\n| --- |{' --- |' * len(heads)}")
    for name, cells in plan(options).items():
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
