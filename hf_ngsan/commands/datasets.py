"""The command `hf-ngsan datasets`: lists the kinds of datasets."""

import argparse

from ..data import describe_readers

SUMMARY = "List the datasets that --data and data.spec accept."
EPILOG = """examples:
  hf-ngsan datasets
  hf-ngsan datasets --import my_reader    # also those that your module registers"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds nothing: the command has no arguments."""


def run(options: argparse.Namespace) -> None:
    print(describe_readers())
