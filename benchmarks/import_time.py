"""Time that `import hf_ngsan` adds to transformers' Auto classes and pipelines, and time of commands in a process.

Fresh processes import transformers or both in turn; the result is the difference of each pair. Times are processor
times, which are robust to other load on the machine; wall time is also printed.

The commands caption a photograph, search, index and extract generated ones, print help, and report a missing file.

    python benchmarks/import_time.py --pairs 15
"""

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from pipeline_batches import write_photos

LIMIT = 0.4
AUTO_CLASSES = "from transformers import AutoImageProcessor, AutoModel, AutoProcessor, pipeline"
COMMANDS = {
    ("caption", "{photo}"): 0.8,
    ("caption", "--scores", "{photo}"): 1.5,
    ("search", "{index}", "a dog"): 1.5,
    ("search", "{index}", "--image", "{photo}"): 1.5,
    ("index", "--images", "{photos}", "--output", "{new}"): 3.0,
    ("extract", "--images", "{photos}", "--backbone", "ngsan-photos", "--output", "{new}"): 4.0,
    ("caption", "missing.jpg"): 0.4,
    ("--help",): 0.3,
}
"""Commands and the maximum processor time of each in seconds."""
TIMED_IMPORT = """
import json, time
wall, processor = time.perf_counter(), time.process_time()
{imports}
print(json.dumps([time.perf_counter() - wall, time.process_time() - processor]))
"""


def import_times(imports: str) -> tuple[float, float]:
    """Returns wall and processor time in seconds of lines of imports in a fresh process."""
    code = TIMED_IMPORT.format(imports=imports)
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return tuple(json.loads(output))


def describe(name: str, values: list[float]) -> str:
    return f"{name:<46}{statistics.median(values):8.3f} s   ({min(values):.3f} to {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15, help="pairs of processes to time")
    parser.add_argument("--runs", type=int, default=5, help="processes of each command (%(default)s)")
    options = parser.parse_args()
    import_times("import hf_ngsan")  # writes byte code and fills the disk cache
    alone, both = [], []
    for _ in range(options.pairs):
        alone.append(import_times(AUTO_CLASSES))
        both.append(import_times("import hf_ngsan"))

    print(f"median of {options.pairs} pairs (smallest to largest)")
    for kind, index in (("processor", 1), ("wall", 0)):
        print(describe(f"Auto classes and pipelines, {kind} time", [times[index] for times in alone]))
        print(describe(f"import hf_ngsan, {kind} time", [times[index] for times in both]))
        added = [two[index] - base[index] for base, two in zip(alone, both, strict=True)]
        print(describe(f"added, {kind} time", added) + f"   required: at most {LIMIT} s")
    with tempfile.TemporaryDirectory() as folder:
        time_commands(Path(folder), options.runs)


def time_commands(folder: Path, runs: int) -> None:
    """Prints the processor time of the commands; `folder` is for their inputs."""
    (folder / "photos").mkdir()
    write_photos(folder / "photos", 5)
    photos = folder / "photos"
    places = {"photo": next(photos.iterdir()), "photos": photos, "index": folder / "found.index"}
    processor_time(["index", "--images", str(folder / "photos"), "--output", str(places["index"])])
    print(f"\nprocessor time of commands, median of {runs} (smallest to largest)")
    for command, limit in COMMANDS.items():
        times = []
        for _ in range(1 + runs):
            new = tempfile.mkdtemp(dir=folder)
            times.append(processor_time([word.format(**places, new=new) for word in command]))
        times = times[1:]
        name = " ".join(["hf-ngsan", *command]).format(
            photo="photo.jpg", photos="photos", index="found.index", new="new"
        )
        print(describe(name, times) + f"   required: at most {limit} s")


def processor_time(arguments: list[str]) -> float:
    """Returns seconds of user and system time of a command in a separate process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "hf_ngsan.cli", *arguments], capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
