"""Processor time of commands, idle and on a busy machine, for different ways in which the threads of PyTorch wait.

Captioning, training, extraction, evaluation and serving run with one thread, with two that spin while they wait (the
default of OpenMP in PyTorch), and with two that sleep (`OMP_WAIT_POLICY=PASSIVE`, which the commands set), in turn,
during some busy loops. Each of the three settings has a separate process, which has loaded everything before. If
another process uses the processor of one thread, a spinning thread wastes processor time.

    python benchmarks/busy.py                       # idle and with 1, 2 and 4 loops, in at most ten minutes
    python benchmarks/busy.py --loops 0 4 --repeats 3 --minutes 30
    python benchmarks/busy.py --tiny                # tests the program
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hf_ngsan.data import draw_scene, load_data

THREADS = {
    "one": {"OMP_NUM_THREADS": "1"},
    "two that spin": {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "300000"},
    "two that sleep": {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"},
}
SMALL = "scenes:size={size},validation=20,test={test},seed=0"
SHORT = ["training.epochs=1", "training.num_threads=null", "--overwrite"]
COMMANDS = {
    "caption": ["caption", "photos", "--engine", "torch"],
    "train": ["train", "--config", "ngsan/scenes", f"data.spec={SMALL}", *SHORT],
    "fine_tune": ["train", "--config", "ngsan/fine_tune", "data.spec=images:photos", *SHORT],
    "extract": ["extract", "--images", "photos", "--backbone", "ngsan-photos", "--engine", "torch", "--output"],
    "evaluate": ["evaluate", "--model", "ngsan-scenes", "--data", SMALL],
    "serve": [],
}
SIZES = {"photos": 12, "size": 200, "test": 60}
TINY = {"photos": 6, "size": 10, "test": 5}


def write_photos(folder: Path, number: int) -> None:
    """Writes drawings of scenes as photographs, each with a file of its captions."""
    folder.mkdir()
    for row in load_data(f"scenes:size={number},validation=1,test=1,seed=0", "train"):
        draw_scene(row, 640).save(folder / f"{row['image_id']}.jpg", quality=90)
        (folder / f"{row['image_id']}.txt").write_text("\n".join(row["captions"]))


def serving(folder: Path) -> Callable[[], None]:
    """Returns a function that sends each photograph to a server of the packaged captioner in this process."""
    from starlette.testclient import TestClient

    from hf_ngsan.io.packaged import CAPTIONER
    from hf_ngsan.loading.models import load_model
    from hf_ngsan.loading.pipelines import CaptioningPipeline
    from hf_ngsan.serving import create_app

    model, processor = load_model(CAPTIONER, "captioning")
    client = TestClient(create_app(CaptioningPipeline(model=model, processor=processor)))
    client.__enter__()  # for as long as the process lives
    photos = [file.read_bytes() for file in sorted(folder.glob("*.jpg"))]

    def ask() -> None:
        for photo in photos:
            client.post("/caption", files={"files": photo}).raise_for_status()

    return ask


def work(sizes: dict[str, int]) -> None:
    """Runs the commands that standard input names, and prints processor time and elapsed time of each, in seconds."""
    from hf_ngsan.cli import main

    ask = None
    for line in sys.stdin:
        name = line.strip()
        command = [word.format(**sizes) for word in COMMANDS[name]]
        if name == "extract":
            command = [*command, tempfile.mkdtemp(dir=".")]
        if name == "serve":
            ask = ask or serving(Path("photos"))
        before, start = os.times(), time.perf_counter()
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            if name == "serve":
                ask()
            elif main(command):
                sys.exit(f"{' '.join(command)} failed")
        after, elapsed = os.times(), time.perf_counter() - start
        print(json.dumps([sum(after[:4]) - sum(before[:4]), elapsed]), flush=True)


class Worker:
    """A process with one of the settings."""

    def __init__(self, variables: dict[str, str], folder: Path, sizes: dict[str, int]) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("OMP_", "GOMP_"))}
        folder.mkdir()
        (folder / "photos").symlink_to(folder.parent / "photos")
        self.errors = folder / "errors.txt"
        self.process = subprocess.Popen(
            [sys.executable, os.path.abspath(__file__), "--worker", json.dumps(sizes)],
            cwd=folder,
            env=environment | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors.open("w"),
            text=True,
        )

    def times(self, name: str) -> tuple[float, float]:
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{name} failed: {self.errors.read_text()[-2000:]}")
        return tuple(json.loads(line))


def measure(options: argparse.Namespace, folder: Path, sizes: dict[str, int]) -> None:
    begin = time.perf_counter()
    write_photos(folder / "photos", sizes["photos"])
    workers = {name: Worker(variables, folder / str(i), sizes) for i, (name, variables) in enumerate(THREADS.items())}
    try:
        for name in options.only:  # the first time everything is imported and loaded
            for worker in workers.values():
                worker.times(name)
        print("| loops | command | one thread, s | two that spin | two that sleep | elapsed: one | spin | sleep |")
        print("| --- | --- | --- | --- | --- | --- | --- | --- |")
        for number in options.loops:
            loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
            try:
                for name in options.only:
                    if time.perf_counter() - begin > 60 * options.minutes:
                        sys.exit(f"The {options.minutes} minutes are over.")
                    runs = {setting: [] for setting in workers}
                    for _ in range(options.repeats):
                        for setting, worker in workers.items():
                            runs[setting].append(worker.times(name))
                    print(row_of(number, name, list(runs.values())), flush=True)
            finally:
                for loop in loops:
                    loop.kill()
    finally:
        for worker in workers.values():
            worker.process.kill()


def row_of(number: int, name: str, runs: list[list[tuple[float, float]]]) -> str:
    """Returns a line of the table: medians with one thread, and of the ratios to it of the other settings."""
    cells = [str(number), name]
    for kind in (0, 1):
        first, *others = [[run[kind] for run in repeats] for repeats in runs]
        cells.append(f"{statistics.median(first):.2f}")
        ratios = [[two / base for two, base in zip(other, first, strict=True)] for other in others]
        cells += [f"{statistics.median(values):.2f}" for values in ratios]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, nargs="+", default=[0, 4, 2, 1], help="busy loops (0 4 2 1)")
    parser.add_argument("--repeats", type=int, default=1, help="runs of each command and setting (%(default)s)")
    parser.add_argument("--minutes", type=float, default=10, help="no command starts after this time (%(default)s)")
    parser.add_argument("--only", nargs="+", choices=COMMANDS, default=list(COMMANDS), help="commands (all)")
    parser.add_argument("--tiny", action="store_true", help="use tiny sizes")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(json.loads(options.worker))
        return
    with tempfile.TemporaryDirectory() as temporary:
        measure(options, Path(temporary).resolve(), TINY if options.tiny else SIZES)


if __name__ == "__main__":
    main()
