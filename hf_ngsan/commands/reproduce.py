"""The command `hf-ngsan reproduce`: trains, evaluates and compares the rows of a paper's table with several seeds."""

import argparse
from pathlib import Path

from ..io import MAX_INTEGER
from .arguments import add_shared, at_most, pick, positive_int, user_path

SUMMARY = """Train and compare the rows of a paper's table.

Each row is trained with several seeds, one process per run. To resume runs that were killed, run the command again. The
table has means and standard deviations, the numbers of the paper, and paired bootstraps against the baseline with
Holm's correction."""
EPILOG = """examples:
  hf-ngsan reproduce ngsan --table 4 --data scenes
  hf-ngsan reproduce ngsan --table 6 --data features:DIR --scale small --only SAN NG-SAN --seeds 5"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("paper", metavar="PAPER", help="paper: ngsan, rstnet, mhsan or spatial_captioner")
    add("overrides", nargs="*", default=[], metavar="key=value", help="change a key of all training configs")
    add("--table", required=True, metavar="N", help="number of the table in the paper")
    add_shared(parser, "--data", required=False, help="dataset, such as features:DIR (default: the paper's)")
    add("--scale", choices=("paper", "small"), help="training configs of the paper or small ones (default: by dataset)")
    add("--seeds", type=positive_int, default=3, metavar="N", help="number of seeds")
    add("--first-seed", type=at_most(MAX_INTEGER, 0), default=0, metavar="N", help="first seed")
    add("--only", nargs="+", metavar="ROW", help="rows of the table (default: all)")
    add("--processes", type=positive_int, metavar="N", help="parallel runs (default: one per GPU or CPU core)")
    add("--budget", type=positive_int, metavar="MINUTES", help="time after which no new run starts (default: no limit)")
    add("--output", type=user_path, metavar="DIR", help="folder of the runs (default: runs/reproduce/PAPER-DATASET)")
    add("--dry-run", action="store_true", help="print the rows, configs and pending runs, without training")
    add("--check", action="store_true", help="check the finished runs and write their table, without training")


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
