"""Measures for `gpu.py`: time between events, peak memory, work against the device's ceilings, and their report.

Every part runs in a separate process, so that an error or a lack of memory or time in one part does not affect the
others; the report includes all measurements up to that point.
"""

import gc
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

BLOCK_SECONDS, MOST_STEPS = 0.2, 20
"""Duration and maximum number of consecutive runs of one work without waiting."""
KERNELS = {"cuda": ("kernel", "gpu_memcpy", "gpu_memset"), "cpu": ("cpu_op",)}
"""Categories of a profile whose events keep the device busy."""
PRECISIONS = {"bf16": torch.bfloat16, "fp32": torch.float32}


class OutOfTimeError(Exception):
    """Raised when the time of a part is over."""


class ByteCounter(TorchDispatchMode):
    """Counts the bytes of operands and results of all operators except views: their memory traffic without fusion.

    For a table of embeddings, it counts only the rows that are read.
    """

    total = 0

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        name = operator.name()
        if not operator.is_view and not name.startswith(("aten::empty", "aten::_unsafe_view", "aten::detach")):
            inputs = result if name == "aten::embedding" else (args, kwargs or {})
            self.total += sum(tensor.nbytes for tensor in tensors_of((inputs, result)))
        return result


def tensors_of(nested: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(nested) if isinstance(leaf, torch.Tensor)]


class Timing(NamedTuple):
    """The seconds of each run."""

    seconds: list[float]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        if len(self.seconds) < 2:
            return self.seconds[0], self.seconds[0]
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high


class Bench:
    """Measures the works of one part.

    Args:
        device: "cuda" or "cpu".
        tiny: whether to use tiny sizes and few runs, to test the program.
        deadline: `time.monotonic()` at which the part must end.
        ceilings: FLOP/s of a large matrix product by precision, and bytes/s of a large copy, once they are measured.
        send: called with each row of the report.
    """

    def __init__(
        self, device: str, tiny: bool, deadline: float, ceilings: dict[str, float], send: Callable[[dict], None]
    ) -> None:
        self.device, self.tiny, self.deadline, self.ceilings, self.send = device, tiny, deadline, ceilings, send
        self.on_gpu = device == "cuda"

    def mark(self) -> Any:
        """Returns the current position in the device's work."""
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def seconds_between(self, start: Any, end: Any) -> float:
        return start.elapsed_time(end) / 1000 if self.on_gpu else end - start

    def synchronize(self) -> None:
        if self.on_gpu:
            torch.cuda.synchronize()

    def autocast(self, precision: str) -> torch.autocast:
        return torch.autocast(self.device, torch.bfloat16, enabled=precision == "bf16")

    def time_left(self) -> float:
        return self.deadline - time.monotonic()

    @contextmanager
    def recorded_failure(self, name: str, **facts: Any) -> Iterator[None]:
        """Reports and suppresses errors inside the `with` block, unless the time is over."""
        if self.time_left() < 0:
            self.send({"name": name, **facts, "error": "no time was left"})
            raise OutOfTimeError
        try:
            yield
        except Exception as error:
            self.send_error(error, name=name, **facts)

    def send_error(self, error: BaseException, **facts: Any) -> None:
        last = f"{type(error).__name__}: {error}".strip().splitlines()[0]
        self.send({**facts, "error": last[:300], "traceback": "".join(traceback.format_exception(error))[-4000:]})
        if self.on_gpu:
            torch.cuda.empty_cache()

    def steps(self, work: Callable[[], object], number: int) -> list[float]:
        """Returns the seconds of consecutive runs, like the steps of a training."""
        self.synchronize()
        marks = [self.mark()]
        for _ in range(number):
            work()
            marks.append(self.mark())
        self.synchronize()
        return [self.seconds_between(start, end) for start, end in pairwise(marks)]

    def compare(
        self,
        makers: dict[str, Callable[[], Callable[[], object]]],
        precision: str,
        items: int = 1,
        unit: str = "steps",
        seconds: float = 1.5,
        warm_up: int = 3,
        count: bool = True,
        busy: bool = True,
    ) -> dict[str, Timing]:
        """Measures works in turns and reports each.

        Args:
            makers: functions that create the works, which are called without arguments; peak memory includes the
                allocations of a maker, but not those of earlier works.
            precision: key of `PRECISIONS`.
            items, unit: number and name of the items that a run processes.
            seconds: time for each work, after warming up.
            warm_up: number of runs that are not timed.
            count: whether to count FLOPs and bytes in a separate run; not for compiled works.
            busy: whether to measure the share of time in which the device is busy.

        Returns:
            The timings of the works that did not fail.
        """
        gc.collect()
        works: dict[str, Callable[[], object]] = {}
        facts: dict[str, dict] = {}
        blocks: dict[str, int] = {}
        for name, make in makers.items():
            with self.recorded_failure(name, precision=precision):
                before = self.allocated(reset=True)
                work = make()
                for _ in range(1 if self.tiny else warm_up):
                    work()
                self.synchronize()
                numbers: dict[str, Any] = {}
                if self.on_gpu:
                    numbers["peak_mib"] = (self.allocated(peak=True) - before) / 2**20
                if count:
                    numbers |= self.counted(work)
                blocks[name] = max(1, min(MOST_STEPS, int(BLOCK_SECONDS / self.steps(work, 1)[0])))
                works[name], facts[name] = work, numbers
            work = None
        taken: dict[str, list[float]] = {name: [] for name in works}
        rounds, started_at = 0, time.monotonic()
        while works and rounds < (1 if self.tiny else 50):
            enough = time.monotonic() - started_at > seconds * len(works) and rounds >= 3
            if enough or (rounds and self.time_left() < 0):
                break
            for name in random.sample(list(works), len(works)):
                try:
                    taken[name] += self.steps(works[name], blocks[name])
                except Exception as error:
                    self.send_error(error, name=name, precision=precision)
                    del works[name]
            rounds += 1
        timings = {name: Timing(taken[name]) for name in works}
        for name, timing in timings.items():
            if busy and self.time_left() > 0:
                with self.recorded_failure(f"{name}: busy share", precision=precision):
                    number = min(blocks[name], 5)
                    facts[name]["busy"] = self.busy_seconds(works[name], number) / number / timing.median
            self.report(name, timing, precision=precision, items=items, unit=unit, **facts[name])
        return timings

    def allocated(self, reset: bool = False, peak: bool = False) -> int:
        if not self.on_gpu:
            return 0
        if reset:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        return torch.cuda.max_memory_allocated() if peak else torch.cuda.memory_allocated()

    def counted(self, work: Callable[[], object]) -> dict[str, float]:
        with FlopCounterMode(display=False) as flops, ByteCounter() as moved:
            work()
        return {"flops": flops.get_total_flops(), "bytes": moved.total}

    def busy_seconds(self, work: Callable[[], object], number: int = 1) -> float:
        """Returns the time in which any kernel or copy runs during `number` runs of the work."""
        activity = torch.profiler.ProfilerActivity.CUDA if self.on_gpu else torch.profiler.ProfilerActivity.CPU
        self.synchronize()
        with torch.profiler.profile(activities=[activity]) as profile:
            for _ in range(number):
                work()
            self.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder, "trace.json")
            profile.export_chrome_trace(str(trace))
            events = json.loads(trace.read_text())["traceEvents"]
        spans = sorted(
            (float(event["ts"]), float(event["ts"]) + float(event["dur"]))
            for event in events
            if event.get("cat") in KERNELS[self.device] and "dur" in event
        )
        busy, until = 0.0, -1.0
        for start, end in spans:
            busy += max(0.0, end - max(start, until))
            until = max(until, end)
        return busy / 1e6

    def report(
        self, name: str, timing: Timing, *, precision: str, items: int = 1, unit: str = "steps", **facts: Any
    ) -> None:
        """Reports a timing, with shares of the ceilings if FLOPs and bytes are known."""
        low, high = timing.quartiles
        row: dict[str, Any] = {"name": name, "precision": precision, "ms": 1000 * timing.median}
        row |= {"ms_quartiles": [1000 * low, 1000 * high], "runs": len(timing.seconds)}
        row |= {"per_second": items / timing.median, "unit": unit, **facts}
        if "flops" in facts and precision in self.ceilings:
            row["share_of_flops"] = facts["flops"] / timing.median / self.ceilings[precision]
            row["share_of_bandwidth"] = facts["bytes"] / timing.median / self.ceilings["bandwidth"]
        self.send(row)

    def require(self, what: str, value: float, at_least: float | None = None, at_most: float | None = None) -> None:
        """Reports whether a number is as required."""
        passed = value >= at_least if at_least is not None else value <= at_most  # type: ignore[operator]
        limit = f"at least {at_least}" if at_least is not None else f"at most {at_most}"
        self.send({"requirement": what, "value": value, "limit": limit, "passed": passed})

    def note(self, name: str, **facts: Any) -> None:
        """Reports facts other than timings."""
        self.send({"name": name, **facts})


class Part(NamedTuple):
    """A part of the program: its title, its function, and its seconds out of eight minutes for all parts."""

    title: str
    work: Callable[[Bench], None]
    seconds: float


def run_in_process(
    part: Part, device: str, tiny: bool, seconds: float, ceilings: dict[str, float], pipe: Connection
) -> None:
    os.setpgid(0, 0)
    bench = Bench(device, tiny, time.monotonic() + seconds, ceilings, pipe.send)
    random.seed(0)
    torch.manual_seed(0)
    if device == "cpu":
        torch.set_num_threads(1)
    try:
        part.work(bench)
    except OutOfTimeError:
        pass
    except BaseException as error:
        bench.send_error(error, name="the part")
    pipe.close()


class Report:
    """The rows from all parts, in a JSON file that is rewritten after every row, and as Markdown next to it."""

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self.path, self.facts = path, facts
        self.parts: dict[str, list[dict]] = {}

    def add(self, part: str, row: dict) -> None:
        self.parts.setdefault(part, []).append(row)
        self.save()
        shown = {name: value for name, value in row.items() if name != "traceback"}
        print(f"{part}: {json.dumps(shown, default=float)}", file=sys.stderr, flush=True)

    def save(self) -> None:
        content = json.dumps({**self.facts, "parts": self.parts}, indent=1, default=float)
        for path, text in ((self.path, content), (self.path.with_suffix(".md"), self.markdown())):
            aside = path.with_name(f".{path.name}")
            aside.write_text(text + "\n", encoding="utf-8")
            aside.replace(path)

    def ceilings(self) -> dict[str, float]:
        return {row["ceiling"]: row["value"] for rows in self.parts.values() for row in rows if "ceiling" in row}

    def markdown(self) -> str:
        lines = [", ".join(f"{name} {value}" for name, value in self.facts.items())]
        required = [row for rows in self.parts.values() for row in rows if "requirement" in row]
        for title, rows in self.parts.items():
            lines += ["", f"**{title}**", ""]
            timed = [row for row in rows if "ms" in row]
            if timed:
                lines += ["| | ms (quartiles) | per second | MiB | FLOP/s | bytes/s | busy |", "|" + " --- |" * 7]
                lines += [line_of(row) for row in timed]
                lines += [""]
            for row in rows:
                if "error" in row:
                    lines.append(f"- {row['name']} {row.get('precision', '')}: {row['error'][:140]}")
                elif "ms" not in row and "requirement" not in row:
                    name = row.get("name", row.get("ceiling"))
                    cells = [f"{key} {short(value)}" for key, value in row.items() if key not in ("name", "ceiling")]
                    lines.append(f"- {name}: {', '.join(cells)}")
        lines += ["", "| required | | limit | |", "| --- | --- | --- | --- |"]
        for row in required:
            verdict = "pass" if row["passed"] else "FAIL"
            lines.append(f"| {row['requirement']} | {row['value']:.3f} | {row['limit']} | {verdict} |")
        return "\n".join(lines)


def line_of(row: dict) -> str:
    low, high = row["ms_quartiles"]
    cells = [
        f"{row['name']}, {row['precision']}",
        f"{short(row['ms'])} ({short(low)} to {short(high)})",
        f"{short(row['per_second'])} {row['unit']}",
        f"{row['peak_mib']:.0f}" if "peak_mib" in row else "",
        *(f"{row[name]:.0%}" if name in row else "" for name in ("share_of_flops", "share_of_bandwidth", "busy")),
    ]
    return f"| {' | '.join(cells)} |"


def short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def start_method(device: str) -> str:
    """Returns the start method of processes: fork, which saves imports, unless forks cannot use the device."""
    if sys.platform != "linux":
        return "spawn"
    probe = get_context("fork").Process(target=use_device, args=(device,))
    probe.start()
    probe.join(60)
    if probe.exitcode != 0:
        probe.kill()
        return "spawn"
    return "fork"


def use_device(device: str) -> None:
    torch.zeros(1, device=device).item()


def run_parts(parts: list[Part], device: str, tiny: bool, minutes: float, report: Report) -> None:
    """Runs the parts one after the other; unused time of a part is available to later parts."""
    context = get_context(start_method(device))
    started_at = time.monotonic()
    scale = minutes * 60 / sum(part.seconds for part in parts)
    ends_at = started_at
    for part in parts:
        ends_at += part.seconds * scale
        receiver, sender = context.Pipe(duplex=False)
        budget = ends_at - time.monotonic()
        arguments = (part, device, tiny, budget, report.ceilings(), sender)
        process = context.Process(target=run_in_process, args=arguments)
        began_at = time.monotonic()
        process.start()
        sender.close()
        try:
            while receiver.poll(max(0.0, ends_at + 10 * scale - time.monotonic())):
                report.add(part.title, receiver.recv())
            report.add(part.title, {"name": "the part", "error": "took too long and was stopped"})
        except EOFError:
            pass
        finally:
            stop(process)
        if process.exitcode not in (0, -signal.SIGKILL):
            report.add(part.title, {"name": "the part", "error": f"its process ended with {process.exitcode}"})
        report.add(part.title, {"name": "the part", "seconds": round(time.monotonic() - began_at, 1)})


def stop(process: Any) -> None:
    """Ends a process and its children, which are in its group."""
    process.join(3)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
