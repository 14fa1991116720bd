"""The command `hf-ngsan audit`: checks that later words, padding and other rows do not affect a model."""

import argparse

from .arguments import add_shared, load_on_device, whole_number

SUMMARY = """Check that later words, padding and other rows do not affect a model.

The command also checks that the order of regions does not affect the predictions."""
EPILOG = """examples:
  hf-ngsan audit --model runs/scenes

The audit changes parts of random inputs that must not affect the predicted words. For each part, it prints the largest
change of a log-probability. The exit code is 0 if all changes are within 1e-5, otherwise 1."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_shared(parser, "--model")
    parser.add_argument("--seed", type=whole_number, default=0, metavar="N", help="random seed of the inputs")


def run(options: argparse.Namespace) -> int:
    from ..tasks.registry import audit_model

    findings = audit_model(load_on_device(options.model)[0], options.seed)
    print(*findings, sep="\n")
    return 0 if all(finding.holds for finding in findings) else 1
