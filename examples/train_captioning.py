"""Train a captioner by a training config and measure the best model on the test split.

    python examples/train_captioning.py --config ngsan/scenes training.epochs=5
    python examples/train_captioning.py --config ngsan/scenes --num-processes 2

A run that was stopped continues with --resume as if it had not been. `hf-ngsan train` does the same without the final
measurement.
"""

import argparse
import json
import logging
import sys

from hf_ngsan.data import extra_scores_of
from hf_ngsan.io.processes import launch_processes, make_accelerator
from hf_ngsan.loading.models import load_captioner
from hf_ngsan.tasks import evaluate_captioner, load_training_config, train
from hf_ngsan.tasks.caption_rows import load_rows, rows_for


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", required=True, help="training config: a YAML file, or the name of a packaged one")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to the training config")
    parser.add_argument("--resume", action="store_true", help="continue the run in the output folder, if any")
    parser.add_argument("--overwrite", action="store_true", help="delete the run in the output folder first")
    parser.add_argument("--test-split", default="test", help="split that the best model is measured on (%(default)s)")
    parser.add_argument("--num-processes", type=int, help="one on each GPU, or several on the processors of a machine")
    return parser.parse_intermixed_args()


def main(options: argparse.Namespace) -> None:
    logging.basicConfig(format="%(message)s")
    logging.getLogger("hf_ngsan").setLevel(logging.INFO)

    config = load_training_config(options.config, options.overrides)
    result = train(config, resume=options.resume, overwrite=options.overwrite)

    accelerator = make_accelerator()
    model, processor = load_captioner(result.best_dir)
    rows = rows_for(model, processor, load_rows(config.data.spec, options.test_split), config.data.spec)
    evaluation = evaluate_captioner(
        model.to(accelerator.device), processor, rows, accelerator, extra_scores=extra_scores_of(config.data.spec)
    )
    if accelerator.is_main_process:
        evaluation.save(result.output_dir / f"captions_{options.test_split}.json")
        print(json.dumps(evaluation.scores, indent=2))
    accelerator.end_training()


if __name__ == "__main__":
    arguments = parse_arguments()
    code = launch_processes(sys.argv, arguments.num_processes)
    if code is not None:
        sys.exit(code)
    main(arguments)
