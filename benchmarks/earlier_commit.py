"""Speed of captions and feature extraction against an earlier commit, in turns, in the same environment.

The earlier commit is checked out into a temporary folder. Each measurement is a separate process, by default with one
thread: the packaged captioner captions photographs one by one and greedily, after two for warming up; `hf-ngsan
extract` encodes them with EfficientNet-Lite2 at 352 pixels without worker processes. The result is the ratio of each
round.

    python benchmarks/earlier_commit.py ac7a30d
    python benchmarks/earlier_commit.py ac7a30d --images PHOTOS --rounds 5
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from pipeline_batches import write_photos

HERE = Path(__file__).resolve().parents[1]
CAPTION = """
import sys, time, torch
from transformers import pipeline
import hf_ngsan
from hf_ngsan.extraction import list_images
folder, threads, *engine = sys.argv[1:]
torch.set_num_threads(int(threads))
options = {"engine": engine[0]} if engine else {}
named = getattr(hf_ngsan, "packaged_model", str)  # transformers itself found the name at earlier commits
captioner = pipeline("image-to-text", model=named("ngsan-photos"), **options)
listed = list_images(folder)
took = []
for image in [*listed.images[:2], *listed.images]:
    started_at = time.perf_counter()
    captioner(str(listed.folder / image.file_name), num_beams=1)
    took.append(time.perf_counter() - started_at)
print(sorted(took[2:])[len(took) // 2 - 1])
"""
EXTRACT = """
import sys, tempfile, time, torch
from hf_ngsan.extraction import extract_features, list_images, load_vision
folder, threads, *engine = sys.argv[1:]
torch.set_num_threads(int(threads))
model, image_processor = load_vision("efficientnet-lite2", image_size=352)
if engine:
    from hf_ngsan.loading.engines import use_engine
    use_engine(model, image_processor, engine[0])
images = list_images(folder)
with tempfile.TemporaryDirectory() as output:
    for name in ("warm", "measured"):
        started_at = time.perf_counter()
        extract_features(model, image_processor, images, f"{output}/{name}", num_workers=0)
    print((time.perf_counter() - started_at) / len(images))
"""
WORK = {"a caption": CAPTION, "features of a photograph": EXTRACT}
REQUIRED: dict[str, dict[str, float]] = {"a caption": {}, "features of a photograph": {"torch": 1 / 1.7, "onnx": 1 / 3}}


def seconds(code: Path, program: str, folder: str, threads: int, *engine: str) -> float:
    """Returns the seconds per photograph of a program that imports the package from a folder of code."""
    settings = {**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": str(threads)}
    command = [sys.executable, "-c", program, folder, str(threads), *engine]
    completed = subprocess.run(command, check=True, capture_output=True, text=True, env=settings, cwd=code)
    return float(completed.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the earlier one")
    parser.add_argument(
        "--images", metavar="DIR", help="a folder of photographs; by default, generated ones of 640 x 480 pixels"
    )
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    options = parser.parse_args()
    reached = True
    with tempfile.TemporaryDirectory() as temporary:
        earlier, drawn = Path(temporary, "earlier"), Path(temporary, "photos")
        subprocess.run(["git", "worktree", "add", "--detach", "-q", earlier, options.commit], check=True, cwd=HERE)
        try:
            if options.images is None:
                drawn.mkdir()
                write_photos(drawn, 40)
            folder = os.path.abspath(options.images or drawn)
            print("| | earlier, ms | engine | now, ms | ratio | required |\n| --- | --- | --- | --- | --- | --- |")
            for name, program in WORK.items():
                took: dict[str, list[float]] = {"earlier": [], "torch": [], "onnx": []}
                for _ in range(options.rounds):
                    took["earlier"].append(seconds(earlier, program, folder, options.threads))
                    for engine in ("torch", "onnx"):
                        took[engine].append(seconds(HERE, program, folder, options.threads, engine))
                for engine in ("torch", "onnx"):
                    ratios = [now / before for now, before in zip(took[engine], took["earlier"], strict=True)]
                    ratio, most = statistics.median(ratios), REQUIRED[name].get(engine)
                    reached &= most is None or ratio <= most
                    before, now = (1000 * statistics.median(took[version]) for version in ("earlier", engine))
                    spread = f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
                    limit = "" if most is None else f"at most {most:.2f}"
                    print(f"| {name} | {before:.1f} | {engine} | {now:.1f} | {spread} | {limit} |", flush=True)
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", earlier], check=True, cwd=HERE)
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
