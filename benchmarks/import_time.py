"""How much `import hf_ngsan` adds to `import transformers`.

Fresh processes import one or both in turn; a pair's difference is what the package adds. Times are those of the
processor, so other work on the machine disturbs little; wall time is printed as well. `--eager` measures what it would
add if all configurations were registered at once.

    python benchmarks/import_time.py --pairs 15
    python benchmarks/import_time.py --pairs 10 --eager
"""

import argparse
import json
import statistics
import subprocess
import sys

LIMIT = 0.2
TIMED_IMPORT = """
import json, time
wall, processor = time.perf_counter(), time.process_time()
import {modules}
{more}
print(json.dumps([time.perf_counter() - wall, time.process_time() - processor]))
"""


def import_times(modules: str, more: str = "") -> tuple[float, float]:
    """Returns wall and processor time in seconds that a fresh process takes to import modules and to run more code."""
    code = TIMED_IMPORT.format(modules=modules, more=more)
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    return tuple(json.loads(output))


def describe(name: str, values: list[float]) -> str:
    return f"{name:<46}{statistics.median(values):8.3f} s   ({min(values):.3f} to {max(values):.3f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=15, help="pairs of processes to time")
    parser.add_argument("--eager", action="store_true", help="register all configurations at once")
    options = parser.parse_args()
    pairs, more = options.pairs, "hf_ngsan.auto.register_configurations()" if options.eager else ""
    import_times("transformers, hf_ngsan")  # writes byte code and fills the disk cache
    alone, both = [], []
    for _ in range(pairs):
        alone.append(import_times("transformers"))
        both.append(import_times("transformers, hf_ngsan", more))

    print(f"median of {pairs} pairs (smallest to largest)")
    for kind, index in (("processor", 1), ("wall", 0)):
        print(describe(f"import transformers, {kind} time", [times[index] for times in alone]))
        print(describe(f"import transformers, hf_ngsan, {kind} time", [times[index] for times in both]))
        added = [two[index] - one[index] for one, two in zip(alone, both, strict=True)]
        print(describe(f"added, {kind} time", added) + f"   required: at most {LIMIT} s")


if __name__ == "__main__":
    main()
