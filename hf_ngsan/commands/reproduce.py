"""The command `hf-ngsan reproduce`: trains, evaluates and compares the rows of a paper's table with several seeds."""

import argparse
from pathlib import Path

from ..io import MAX_INTEGER
from .arguments import add_shared, at_most, pick, positive_int, user_path

SUMMARY = """Train and compare the rows of a paper's table.

Each row is trained with several seeds, one process per run; the same command resumes runs that were killed. The table
has means and standard deviations, the paper's numbers, and paired bootstraps against the baseline, with Holm's
correction."""
EPILOG = """examples:
  hf-ngsan reproduce ngsan --table 4 --data scenes
  hf-ngsan reproduce ngsan --table 6 --data features:DIR --scale small --only SAN NG-SAN --seeds 5

Papers: ngsan, rstnet, mhsan and spatial_captioner."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("paper", metavar="PAPER", help="ngsan, rstnet, mhsan or spatial_captioner")
    add("overrides", nargs="*", default=[], metavar="key=value", help="change a key of every training config")
    add("--table", required=True, metavar="N", help="number of the table in the paper")
    add_shared(parser, "--data", required=False, help="dataset, such as scenes or features:DIR (the paper's)")
    add("--scale", choices=("paper", "small"), help="training configs of the paper, or small ones for other data")
    add("--seeds", type=positive_int, default=3, metavar="N", help="number of seeds (%(default)s)")
    add("--first-seed", type=at_most(MAX_INTEGER, 0), default=0, metavar="N", help="first seed (%(default)s)")
    add("--only", nargs="+", metavar="ROW", help="rows of the table (default: all)")
    add("--processes", type=positive_int, metavar="N", help="number of parallel runs (one per GPU or processor)")
    add("--budget", type=positive_int, metavar="MINUTES", help="start no further run after this number of minutes")
    add("--output", type=user_path, metavar="DIR", help="folder of runs and tables (runs/reproduce/PAPER-DATASET)")
    add("--dry-run", action="store_true", help="only print the rows, their training configs and the pending runs")
    add("--check", action="store_true", help="train nothing; check the finished runs and write their table")


def run(options: argparse.Namespace) -> int:
    import os

    import torch

    from ..reproduction import find_table, make_plan
    from ..reproduction.results import reproduce

    dataset = "" if options.data is None else f"-{options.data.partition(':')[0]}"
    output = Path(options.output or f"runs/reproduce/{options.paper}{dataset}")
    if options.only is not None:  # argparse adds the words that follow; only names of rows have spaces before "="
        options.overrides += [word for word in options.only if "=" in word and " " not in word]
        options.only = [word for word in options.only if word not in options.overrides] or None
    plan = make_plan(
        find_table(options.paper, options.table),
        output=output,
        seeds=range(options.first_seed, options.first_seed + options.seeds),
        **pick(options, "data", "scale", "only", "overrides"),
        threads=None if torch.accelerator.is_available() else 1,
    )
    if options.dry_run:
        print(f"Table {plan.table.number} of {plan.table.source}: {plan.table.title}; {plan.spec}, split {plan.split}")
        if not plan.is_papers:
            print(f"The paper used other data ({plan.table.data['name']}).")
        for name, configs in {run.run.name: run.commands[0][2] for run in plan.runs}.items():
            todo = sum(run.run.name == name and not run.is_done() for run in plan.runs)
            print(f"{name}\t{configs}\t{todo} pending runs")
        return 0
    processes = options.processes or torch.accelerator.device_count() or os.cpu_count() or 1
    table, errors = reproduce(plan, None if options.check else processes, options.budget, options.modules)
    print(table)
    print(f"Written: {output}/table-{options.table}.md and .json")
    return 1 if errors else 0
