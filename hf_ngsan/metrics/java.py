"""SPICE, and METEOR on request, by their official Java programs, which are part of pycocoevalcap (extra `eval`)."""

import importlib.util
import json
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from .corpus import CaptionCorpus
from .metric import CaptionMetric

MAX_BYTES = 2**20
"""Maximal bytes of an answer, or of the output that explains a failure."""


class JavaMetricUnavailable(FileNotFoundError):
    """Java or a file that a metric needs is missing; the message names it and how to get it."""


class JavaProgramError(ChildProcessError):
    """A Java program stopped, gave no answer in time, or gave one that is no score."""


class JavaMetric(CaptionMetric):
    """A metric that runs a jar of pycocoevalcap. The preflight runs when the metric is made.

    Raises:
        JavaMetricUnavailable: Java, pycocoevalcap or one of the files in `needed_files` is missing.
    """

    display_name: str
    needed_files: Mapping[str, str] = {}
    seconds_to_start = 120.0
    seconds_a_caption = 2.0
    """With `seconds_to_start`, the time after which a program without an answer is killed."""

    def __init__(self, **kwargs: Any) -> None:
        self.folder = self.preflight()
        super().__init__(**kwargs)

    @classmethod
    def preflight(cls) -> Path:
        """Returns the folder of pycocoevalcap, or raises a JavaMetricUnavailable if the metric cannot run."""
        if shutil.which("java") is None:
            raise JavaMetricUnavailable(
                f"{cls.display_name} runs on Java, and there is no `java` on the PATH: install a Java runtime "
                "(version 8 or later)."
            )
        package = importlib.util.find_spec("pycocoevalcap")
        if package is None or package.submodule_search_locations is None:
            raise JavaMetricUnavailable(
                f"{cls.display_name} needs the package pycocoevalcap: pip install 'hf-ngsan[eval]'."
            )
        folder = Path(next(iter(package.submodule_search_locations)))
        for file, remedy in cls.needed_files.items():
            if not (folder / file).is_file():
                raise JavaMetricUnavailable(f"{cls.display_name} needs {folder / file}, which is missing: {remedy}")
        return folder

    def seconds_for(self, corpus: CaptionCorpus) -> float:
        return self.seconds_to_start + self.seconds_a_caption * sum(1 + len(texts) for texts in corpus.references)

    def error(self, reason: str) -> JavaProgramError:
        return JavaProgramError(
            f"{self.display_name}'s Java program {reason}; check that it runs by itself, or leave the metric out."
        )

    def no_answer(self, seconds: float) -> JavaProgramError:
        return self.error(f"gave no answer within {seconds:.0f} s and was ended")

    def no_score(self, error: Exception) -> JavaProgramError:
        return self.error(f"gave an answer that is no score ({error!r:.200})")

    def stopped(self, output: bytes) -> JavaProgramError:
        """Returns the error of a program that ended, with the last line of its output."""
        lines = output.decode(errors="replace").strip().splitlines() or ["no reason given"]
        return self.error(f"stopped ({lines[-1]})")


class JavaMeteor(JavaMetric):
    """METEOR 1.5 from its program: what [`~hf_ngsan.metrics.Meteor`] runs with `backend="java"`.

    Raises:
        JavaMetricUnavailable: Java or pycocoevalcap is missing.
    """

    display_name = "METEOR"
    summary = "METEOR 1.5 (Denkowski and Lavie, 2014) by its Java program."
    needed_files = dict.fromkeys(
        ["meteor/meteor-1.5.jar", "meteor/data/paraphrase-en.gz"], "install pycocoevalcap again."
    )

    def score_corpus(self, corpus: CaptionCorpus) -> tuple[Mapping[str, float], Mapping[str, np.ndarray]]:
        command = ["java", "-jar", "-Xmx2G", "meteor-1.5.jar", "-", "-", "-stdio", "-l", "en", "-norm"]
        with (
            tempfile.TemporaryFile() as log,
            subprocess.Popen(
                command, cwd=self.folder / "meteor", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log
            ) as process,
        ):
            seconds = self.seconds_for(corpus)
            clock = threading.Timer(seconds, process.kill)
            clock.start()
            assert process.stdin is not None and process.stdout is not None
            questions, answers = process.stdin, process.stdout
            try:
                statistics = []
                for prediction, references in zip(corpus.predictions, corpus.references, strict=True):
                    # The program divides its input at this mark.
                    captions = [text.replace("|||", "").replace("  ", " ") for text in (*references, prediction)]
                    statistics.append(ask_program(questions, answers, " ||| ".join(["SCORE", *captions])))
                first = ask_program(questions, answers, " ||| ".join(["EVAL", *statistics]))
                images = [first, *(read_answer(answers) for _ in range(len(corpus) - 1))]
                total = float(read_answer(answers))
                scores = np.array(images, dtype=float)
            except OSError:
                if clock.finished.is_set():
                    raise self.no_answer(seconds) from None
                log.seek(0)
                raise self.stopped(log.read(MAX_BYTES)) from None
            except ValueError as error:
                raise self.no_score(error) from None
            finally:
                clock.cancel()
                with suppress(BrokenPipeError):  # the program no longer reads the buffer
                    questions.close()
                process.kill()
        return {"meteor": total}, {"meteor": scores}


def ask_program(questions: IO[bytes], answers: IO[bytes], line: str) -> str:
    questions.write(f"{line}\n".encode())
    questions.flush()
    return read_answer(answers)


def read_answer(answers: IO[bytes]) -> str:
    answer = answers.readline(MAX_BYTES)
    if not answer:
        raise BrokenPipeError
    return answer.decode().strip()


class Spice(JavaMetric):
    """SPICE (Anderson et al., ECCV 2016): `spice`, the F-score over all tuples, from the official program.

    pycocoevalcap does not bring the parser's models: the files of Stanford CoreNLP 3.6.0 belong in its `spice/lib`.

    Raises:
        JavaMetricUnavailable: Java, pycocoevalcap or the models are missing.
    """

    display_name = "SPICE"
    seconds_to_start = 600.0
    summary = "SPICE (Anderson et al., 2016); needs Java and the models of Stanford CoreNLP 3.6.0."
    needed_files = {
        "spice/spice-1.0.jar": "install pycocoevalcap again.",
        **dict.fromkeys(
            ["spice/lib/stanford-corenlp-3.6.0.jar", "spice/lib/stanford-corenlp-3.6.0-models.jar"],
            "take it from stanford-corenlp-full-2015-12-09.zip at nlp.stanford.edu/software.",
        ),
    }

    def score_corpus(self, corpus: CaptionCorpus) -> tuple[Mapping[str, float], Mapping[str, np.ndarray]]:
        rows = [
            {"image_id": row, "test": prediction, "refs": references}
            for row, (prediction, references) in enumerate(zip(corpus.predictions, corpus.references, strict=True))
        ]
        with tempfile.TemporaryDirectory() as directory:
            source, target = Path(directory, "captions.json"), Path(directory, "scores.json")
            source.write_text(json.dumps(rows))
            command = ["java", "-jar", "-Xmx8G", "spice-1.0.jar", str(source), "-out", str(target)]
            command += ["-subset", "-silent"]
            seconds, folder = self.seconds_for(corpus), self.folder / "spice"
            try:
                done = subprocess.run(
                    command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=seconds
                )
            except subprocess.TimeoutExpired:
                raise self.no_answer(seconds) from None
            if done.returncode or not target.is_file():
                raise self.stopped(done.stderr)
            images = np.zeros(len(corpus))
            try:
                for item in json.loads(target.read_text()):
                    images[item["image_id"]] = item["scores"]["All"]["f"] or 0.0
            except (ValueError, LookupError, TypeError, RecursionError) as error:
                raise self.no_score(error) from None
        images = np.nan_to_num(images)
        return {"spice": images.mean()}, {"spice": images}
