"""The runs of a plan: a process each, several at a time, on as many devices as there are.

A run that has its record is skipped, one that was killed resumes, and one that fails does not stop the others.
"""

import json
import os
import platform
import queue
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ..io.files import write_text_atomically
from ..training.config import ConfigError
from .plan import Plan, PlannedRun

PROCESS = (
    "import json, sys; from hf_ngsan.io.processes import end_with_parent; end_with_parent(); "
    "from hf_ngsan.cli import main; sys.exit(next(filter(None, map(main, json.loads(sys.argv[1]))), 0))"
)
"""Runs the commands of a run one after the other, so that torch is imported once; ends with this process."""
LIBRARIES = ("hf-ngsan", "torch", "transformers", "accelerate", "datasets", "numpy")
OF_RECORDS = {"data": "data", "evaluation": "evaluation settings"}


def num_devices() -> int:
    """Returns the number of accelerators, or else of processors."""
    return torch.accelerator.device_count() or os.cpu_count() or 1


def execute(
    plan: Plan, processes: int, minutes: float | None, say: Callable[[str], None], modules: Sequence[str] = ()
) -> dict[str, str]:
    """Trains and evaluates the runs that are not done yet; returns the errors of failed ones by their folders' names.

    Args:
        plan: the plan.
        processes: runs at a time.
        minutes: no run begins later than this; `None` = all do.
        say: called with a line of progress.
        modules: Python modules that each run imports first.
    """
    end = None if minutes is None else time.monotonic() + 60 * minutes
    free: queue.Queue[int] = queue.Queue()
    for number in range(processes):
        free.put(number % max(1, torch.accelerator.device_count()))
    running: set[subprocess.Popen] = set()
    errors: dict[str, str] = {}

    def call(planned: PlannedRun) -> None:
        if planned.is_done() or (end is not None and time.monotonic() > end):
            return
        device = free.get()
        try:
            error = run_process(planned, device, running, modules)
        finally:
            free.put(device)
        if error is None:
            write_record(planned, plan)
        else:
            errors[planned.folder.name] = error
        say(f"{planned.run.name}, seed {planned.seed}: {'done' if error is None else f'failed: {error}'}")

    required = [planned for planned in plan.runs if planned.run.name not in plan.names]
    pool = ThreadPoolExecutor(processes)
    try:
        for runs in (required, [planned for planned in plan.runs if planned not in required]):
            list(pool.map(call, runs))
    finally:  # Ctrl-C, too
        pool.shutdown(wait=False, cancel_futures=True)
        for process in running.copy():
            process.terminate()
    return errors


def run_process(planned: PlannedRun, device: int, running: set[subprocess.Popen], modules: Sequence[str]) -> str | None:
    """Returns the error of a run, or None."""
    commands = [[*(f"--import={module}" for module in modules), *command] for command in planned.commands]
    planned.folder.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    if torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        environment["CUDA_VISIBLE_DEVICES"] = visible[device] if visible[0] else str(device)
    else:
        environment.setdefault("OMP_NUM_THREADS", "1")
    with open(planned.file(".log"), "a", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", PROCESS, json.dumps(commands)], stdout=log, stderr=log, env=environment
        )
        running.add(process)
        code = process.wait()
        running.discard(process)
    if code == 0:
        return None
    lines = planned.file(".log").read_text(encoding="utf-8", errors="replace").strip().splitlines()
    told = lines[-1] if lines else ""
    if not told.startswith("hf-ngsan: error: "):
        return f"it ended with code {code}; see {planned.file('.log')}"
    return told.removeprefix("hf-ngsan: error: ")


def write_record(planned: PlannedRun, plan: Plan) -> None:
    """Writes the settings, data, scores and environment of a run into a file beside its folder."""
    history = (planned.folder / "history.jsonl").read_text(encoding="utf-8").splitlines()
    found = json.loads(planned.file(".scores.json").read_text(encoding="utf-8"))
    record = {
        "row": planned.run.name,
        "seed": planned.seed,
        "scores": found["scores"],
        "data": plan.facts,
        "evaluation": found["fingerprints"],
        "config": planned.config.to_dict(),
        "commit": commit(),
        "versions": {name: version(name) for name in LIBRARIES} | {"python": platform.python_version()},
        "device": device_name(),
        "training_seconds": round(sum(json.loads(line)["seconds"] for line in history), 1),
    }
    write_text_atomically(planned.file(".record.json"), json.dumps(record, indent=1) + "\n")


def read_records(plan: Plan) -> dict[tuple[str, int], dict]:
    """Returns the records of finished runs by row and seed.

    Raises:
        ConfigError: they have other data or evaluation settings than each other or the plan.
    """
    records: dict[tuple[str, int], dict] = {}
    expected: dict[str, Any] = {"data": plan.facts}
    for planned in plan.runs:
        if planned.run.name not in plan.names or not planned.is_done():
            continue
        record = json.loads(planned.file(".record.json").read_text(encoding="utf-8"))
        for key, name in OF_RECORDS.items():
            if expected.setdefault(key, record[key]) != record[key]:
                other, own = expected[key], record[key]
                parts = [part for part in {*other, *own} if other.get(part) != own.get(part)]
                raise ConfigError(
                    f"{planned.folder} has other {name} ({', '.join(sorted(parts))}) than this table, whose rows would "
                    "not compare; choose another --output."
                )
        records[planned.run.name, planned.seed] = record
    return records


def commit() -> str | None:
    """Returns the commit of the checkout that the package is in, with a + if files were changed; None without one."""
    folder = Path(__file__).parent
    try:
        found = [
            subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, check=True, timeout=20).stdout
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no", "."])
        ]
    except (OSError, subprocess.SubprocessError):
        return None
    return found[0].strip() + ("+" if found[1].strip() else "")


def device_name() -> str:
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return str(accelerator or platform.processor() or platform.machine())
