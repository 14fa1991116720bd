"""Processor time of commands on a busy machine, for different ways in which the threads of PyTorch wait.

Each command runs with one thread, with two that spin while they wait (the default of OpenMP in PyTorch), and with two
that sleep (`OMP_WAIT_POLICY=PASSIVE`, which the commands set), in turn, during some busy loops. If another process uses
the processor of one thread, a spinning thread wastes processor time.

    python benchmarks/busy.py --loops 4 --repeats 3
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hf_ngsan.data import draw_scene, load_data

THREADS = {
    "one thread": {"OMP_NUM_THREADS": "1"},
    "two, spinning": {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "300000"},
    "two, passive": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"},
}
SMALL = "scenes:size=400,validation=20,test=100,seed=0"
SHORT = ["training.epochs=1", "training.num_threads=null", "--overwrite"]
COMMANDS = {
    "caption": ["caption", "photos", "--engine", "torch"],
    "train scenes": ["train", "--config", "ngsan/scenes", f"data.spec={SMALL}", *SHORT],
    "fine-tune": ["train", "--config", "ngsan/fine_tune", "data.spec=images:photos", *SHORT],
    "extract": ["extract", "--images", "photos", "--backbone", "ngsan-photos", "--output"],
    "evaluate": ["evaluate", "--model", "ngsan-scenes", "--data", SMALL],
}


def write_photos(folder: Path, number: int) -> None:
    """Writes drawings of scenes as photographs, each with a file of its captions."""
    folder.mkdir()
    for row in load_data(f"scenes:size={number},validation=1,test=1,seed=0", "train"):
        draw_scene(row, 640).save(folder / f"{row['image_id']}.jpg", quality=90)
        (folder / f"{row['image_id']}.txt").write_text("\n".join(row["captions"]))


def times(command: list[str], variables: dict[str, str], folder: Path) -> tuple[float, float]:
    """Returns processor time and elapsed time of a command, in seconds."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
    if command[0] == "extract":
        command = [*command, tempfile.mkdtemp(dir=folder)]
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "hf_ngsan.cli", *command],
        cwd=folder,
        env=environment | variables,
        capture_output=True,
        text=True,
    )
    after, elapsed = os.times(), time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(command)} exits with {done.returncode}: {done.stderr[-2000:]}")
    return after.children_user + after.children_system - before.children_user - before.children_system, elapsed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=0, help="busy loops during the commands (%(default)s)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each command and setting (%(default)s)")
    parser.add_argument("--photos", type=int, default=12, help="photographs (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS), help="commands (all)")
    options = parser.parse_args()
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(options.loops)]
    try:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            write_photos(folder / "photos", options.photos)
            for name in options.only:
                measured: dict[str, list[tuple[float, float]]] = {setting: [] for setting in THREADS}
                for _ in range(options.repeats):
                    for setting, variables in THREADS.items():
                        measured[setting].append(times(COMMANDS[name], variables, folder))
                medians = {key: [*map(statistics.median, zip(*runs, strict=True))] for key, runs in measured.items()}
                for setting, (processor, elapsed) in medians.items():
                    ratio = processor / medians["one thread"][0]
                    print(
                        f"{name}, {setting}: {processor:.1f} s of processor time ({ratio:.2f}), {elapsed:.1f} s",
                        flush=True,
                    )
    finally:
        for loop in loops:
            loop.kill()


if __name__ == "__main__":
    main()
