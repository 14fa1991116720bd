"""The command `hf-ngsan reproduce`: a table of a paper, trained with several seeds, evaluated and compared."""

import argparse
import logging
from pathlib import Path
from typing import TYPE_CHECKING

from ..io import MAX_INTEGER
from .arguments import DATASETS, at_most, positive_int, user_path

if TYPE_CHECKING:
    from ..reproduction.plan import Plan

SUMMARY = """Train and compare the rows of a paper's table.

Each row is trained with several seeds, a process each. Runs that are finished are skipped, those that were killed
resume. The table has means and standard deviations over seeds, the paper's numbers, and paired bootstraps over images
against the baseline, with Holm's correction; it is written as Markdown, CSV, JSON and a picture, beside a record of
every run."""
EPILOG = f"""examples:
  hf-ngsan reproduce ngsan --table 4 --data scenes --dry-run
  hf-ngsan reproduce ngsan --table 4 --data scenes
  hf-ngsan reproduce ngsan --table 6 --data features:DIR --scale small --only SAN NG-SAN --seeds 5
  hf-ngsan reproduce ngsan --table 4 --data scenes --check
  hf-ngsan reproduce ngsan --figure 3 --model runs/reproduce/ngsan-scenes/runs/content-independent-0

Papers: ngsan, rstnet, mhsan and spatial_captioner.

{DATASETS}"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paper", metavar="PAPER", help="ngsan, rstnet, mhsan or spatial_captioner")
    parser.add_argument(
        "overrides", nargs="*", default=[], metavar="key=value", help="change a key of every training config"
    )
    either = parser.add_mutually_exclusive_group(required=True)
    either.add_argument("--table", metavar="N", help="number of the table in the paper")
    either.add_argument("--figure", metavar="N", help="ngsan: 3 or 4, the geometric weight of a model that you name")
    parser.add_argument("--model", type=user_path, metavar="DIR", help="for --figure: a captioner with a content bias")
    parser.add_argument("--data", metavar="SPEC", help="dataset, such as scenes or features:DIR (the paper's)")
    parser.add_argument(
        "--scale",
        choices=("paper", "small"),
        help="training configs: the paper's, or small ones for other data (paper for data of the kind of the paper's, "
        "else small)",
    )
    parser.add_argument("--seeds", type=positive_int, default=3, metavar="N", help="number of seeds (%(default)s)")
    parser.add_argument(
        "--first-seed",
        type=at_most(MAX_INTEGER, 0),
        default=0,
        metavar="N",
        help="the first of them (%(default)s)",
    )
    parser.add_argument("--only", nargs="+", metavar="ROW", help="rows of the table (all)")
    parser.add_argument("--processes", type=positive_int, metavar="N", help="runs at a time (one per GPU or processor)")
    parser.add_argument("--budget", type=positive_int, metavar="MINUTES", help="begin no run after so many minutes")
    parser.add_argument(
        "--output", type=user_path, metavar="DIR", help="folder of runs and tables (runs/reproduce/PAPER-DATASET)"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print rows, training configs, parameters and estimated times"
    )
    parser.add_argument(
        "--check", action="store_true", help="train nothing: check the runs that are there, and write their table"
    )


def run(options: argparse.Namespace) -> int:
    import torch

    from ..io.folders import FolderLock
    from ..reproduction import find_table
    from ..reproduction.plan import make_plan
    from ..reproduction.results import as_markdown, results_of, write_results
    from ..reproduction.runs import execute, num_devices, read_records
    from ..visualization import check_matplotlib

    if options.figure is not None:
        draw_figure(options)
        return 0
    if options.model is not None:
        raise ValueError("--model is for --figure; a table trains its models. Leave it out.")
    table = find_table(options.paper, options.table)
    if options.only is not None:  # argparse gives it what follows; the name of a row with = has spaces
        options.overrides += [word for word in options.only if "=" in word and " " not in word]
        options.only = [word for word in options.only if word not in options.overrides] or None
    if not options.dry_run:
        check_matplotlib()
    output = Path(options.output or default_output(options))
    plan = make_plan(
        table,
        output=output,
        data=options.data,
        scale=options.scale,
        seeds=range(options.first_seed, options.first_seed + options.seeds),
        only=options.only,
        overrides=options.overrides,
        threads=None if torch.accelerator.is_available() else 1,
    )
    processes = options.processes or num_devices()
    records = read_records(plan)
    if options.dry_run:
        print_plan(plan, processes)
        return 0
    errors: dict[str, str] = {}
    if not options.check:
        busy = FileExistsError(
            f"Another reproduction is writing {output}; wait for its end, or choose another --output."
        )
        with FolderLock(output, busy):
            errors = execute(plan, processes, options.budget, lambda line: print(line, flush=True), options.modules)
        records = read_records(plan)
    if not records:
        reason = next(iter(errors.values()), "train some first")
        raise ValueError(f"{output} has no finished run of table {options.table}: {reason}")
    results = results_of(plan, records, errors)
    files = write_results(results, output)
    print(as_markdown(results))
    print(f"Written: {', '.join(map(str, files))}")
    return 1 if errors else 0


def draw_figure(options: argparse.Namespace) -> None:
    """Draws figure 3 or 4 of Guo et al. of a model.

    Raises:
        UnknownTableError: another figure; the message says which commands draw those of the other papers.
        ValueError: no model, or one without a content-independent bias.
    """
    from ..loading.models import load_captioner
    from ..reproduction import UnknownTableError
    from ..visualization import check_matplotlib, plot_geometric_weights, save_figure

    kinds = {"3": "position", "4": "size"}
    if options.paper != "ngsan" or options.figure not in kinds:
        raise UnknownTableError(
            f"There is no figure {options.figure} of {options.paper} here. ngsan has 3 and 4; hf-ngsan visualness "
            "--figures draws those of rstnet, hf-ngsan explain --figure the heat maps of mhsan."
        )
    if options.model is None:
        raise ValueError("--figure needs a trained captioner; name it with --model.")
    check_matplotlib()
    model, _ = load_captioner(options.model)
    figure = plot_geometric_weights(model, kinds[options.figure])  # type: ignore[arg-type]  # one of the two
    path = Path(options.output or default_output(options)) / f"figure-{options.figure}.png"
    save_figure(figure, path)
    print(f"Written: {path}")


def default_output(options: argparse.Namespace) -> str:
    name = options.paper if options.data is None else f"{options.paper}-{options.data.partition(':')[0]}"
    return f"runs/reproduce/{name}"


def print_plan(plan: "Plan", processes: int) -> None:
    """Prints rows, training configs, parameters and times, each from some measured steps."""
    from ..reproduction.plan import measure

    logging.getLogger("hf_ngsan").setLevel(logging.WARNING)
    print(f"Table {plan.table.number} of {plan.table.source}: {plan.table.title}; {plan.spec}, split {plan.split}")
    if not plan.is_papers:
        print(f"These are other data than the paper's ({plan.table.data['name']}).")
    print("row\tconfig\tparameters\tminutes of a training\truns to do")
    total = 0.0
    for planned, parameters, seconds in measure(plan):
        name, config = planned.run.name, planned.commands[0][2]
        runs = sum(other.run.name == name and not other.is_done() for other in plan.runs)
        total += runs * seconds
        print(f"{name}\t{config}\t{parameters:,}\t{seconds / 60:.1f}\t{runs}", flush=True)
    print(f"about {total / 60 / processes:.0f} minutes of training on {processes} processes, by measured steps")
