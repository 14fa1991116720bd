"""SPICE, and METEOR on request, by their official Java programs, which are part of pycocoevalcap (extra `eval`)."""

import importlib.util
import json
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .caption_metric import CaptionCorpus, CaptionMetric


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

    def run(self, command: Sequence[str], corpus: CaptionCorpus, lines: Sequence[str] = ()) -> list[str]:
        """Returns the lines that a program of the jar's folder answers to some lines.

        Raises:
            JavaProgramError: it stopped, or gave no answer in time.
        """
        seconds = self.seconds_to_start + self.seconds_a_caption * sum(1 + len(texts) for texts in corpus.references)
        try:
            done = subprocess.run(
                ["java", "-jar", *command],
                cwd=self.folder / self.display_name.lower(),
                input="".join(f"{line}\n" for line in lines).encode(),
                capture_output=True,
                timeout=seconds,
            )
        except subprocess.TimeoutExpired:
            raise self.error(f"gave no answer within {seconds:.0f} s and was ended") from None
        if done.returncode:
            reason = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
            raise self.error(f"stopped ({reason[-1]})")
        return done.stdout.decode(errors="replace").splitlines()

    def error(self, reason: str) -> JavaProgramError:
        return JavaProgramError(
            f"{self.display_name}'s Java program {reason}; check that it runs by itself, or leave the metric out."
        )


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
        command = ["-Xmx2G", "meteor-1.5.jar", "-", "-", "-stdio", "-l", "en", "-norm"]
        questions = []
        for prediction, references in zip(corpus.predictions, corpus.references, strict=True):
            # The program divides its input at this mark.
            captions = [text.replace("|||", "").replace("  ", " ") for text in (*references, prediction)]
            questions.append(" ||| ".join(["SCORE", *captions]))
        statistics = self.run(command, corpus, questions)
        answers = self.run(command, corpus, [" ||| ".join(["EVAL", *statistics])])
        try:
            *images, total = map(float, answers)
        except ValueError as error:
            raise self.error(f"gave an answer that is no score ({error})") from None
        if len(images) != len(corpus):
            raise self.error(f"gave {len(images)} scores for {len(corpus)} images")
        return {"meteor": total}, {"meteor": np.array(images)}


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
            self.run(["-Xmx8G", "spice-1.0.jar", str(source), "-out", str(target), "-subset", "-silent"], corpus)
            try:
                scores = {item["image_id"]: item["scores"]["All"]["f"] for item in json.loads(target.read_text())}
                images = np.nan_to_num(np.array([scores[row] or 0.0 for row in range(len(corpus))]))
            except (OSError, ValueError, LookupError, TypeError) as error:
                raise self.error(f"gave an answer that is no score ({error!r:.200})") from None
        return {"spice": images.mean()}, {"spice": images}
