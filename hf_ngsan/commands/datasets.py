"""The command `hf-ngsan datasets`: a list of the kinds of datasets."""

import argparse

from ..data import describe_readers

SUMMARY = "List the kinds of datasets, for --data and data.spec."
EPILOG = """examples:
  hf-ngsan datasets
  hf-ngsan datasets --import my_reader    # with those that your module registers"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Takes no arguments of its own."""


def run(options: argparse.Namespace) -> None:
    print(describe_readers())
