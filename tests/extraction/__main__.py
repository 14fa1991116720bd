"""`hf-ngsan extract` alone, for tests that need processes of their own."""

import argparse
import sys

from hf_ngsan.extraction.command import add_extract_arguments, run_extract

parser = argparse.ArgumentParser()
add_extract_arguments(parser)
sys.exit(run_extract(parser.parse_args()))
