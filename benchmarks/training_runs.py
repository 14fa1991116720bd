"""Runs of `hf-ngsan` for benchmarks that train, each a process with one CPU thread and a log, and their statistics."""

import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any


def call(run: Path, *arguments: object) -> str:
    """Returns the output of an `hf-ngsan` command.

    Its messages are written to a log next to the folder of the run, and its CPU seconds to `RUN.cpu`.
    """
    run.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "hf_ngsan.cli", *map(str, arguments)]
    log = run.with_suffix(".log")
    modules = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))  # for --import
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": modules}
    with open(log, "a") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
    with open(run.with_suffix(".cpu"), "a") as times:
        times.write(f"{usage.ru_utime + usage.ru_stime:.1f} {arguments[0]}\n")
    if status:
        raise SystemExit(f"{' '.join(command)}\nfailed: {log.read_text().strip().splitlines()[-1]}")
    return output


def by_variant(
    run: Callable[[Any, int], Any], variants: Iterable[Any], seeds: Iterable[int], jobs: int
) -> dict[Any, list[Any]]:
    """Returns a list over seeds of the results of `run(variant, seed)` for each variant; several run in parallel.

    The first seed of every variant comes first, so that an unfinished queue already compares all variants.
    """
    results: dict[Any, list[Any]] = {variant: [] for variant in variants}
    queue = [(variant, seed) for seed in seeds for variant in results]
    with ThreadPoolExecutor(jobs) as pool:
        outputs = list(pool.map(lambda each: run(*each), queue))
    for (variant, _), result in zip(queue, outputs, strict=True):
        results[variant].append(result)
    return results


def cpu_minutes(run: Path, command: str = "train") -> float:
    """Returns the CPU time of the finished calls of a command for a run."""
    lines = map(str.split, run.with_suffix(".cpu").read_text().splitlines())
    return sum(float(seconds) for seconds, name in lines if name == command) / 60


def spread(values: list[float], digits: int = 4) -> str:
    """Returns mean and sample standard deviation."""
    deviation = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.{digits}f}{deviation}"
