"""Trains captioners of relations of detected objects with several seeds, and tests them on other photographs, by groups
of relations, after exchanges of boxes, and on statements that people judged.

    python benchmarks/relations_features.py --data DATA --output features
    python benchmarks/relations.py --features features --seeds 0 1 2

Finished runs are skipped. `--kinds reduced` trains captioners of scenes further, on few dimensions of the features.
`--kinds scenes` trains nothing: it tests the packaged captioners of synthetic scenes on the same boxes, with a random
colour and shape for each object instead of its appearance. An effect is the difference from SAN, averaged over seeds
and photographs, with the 95% interval of a paired bootstrap. "classes" gives the most frequent answer for two classes
in the training captions. "boxes" answers judged statements only from the boxes, and is an upper bound for captioners.
"""

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import load_from_disk

from hf_ngsan.cli import main as hf_ngsan_command
from hf_ngsan.data import load_data
from hf_ngsan.data.contract import with_arrays
from hf_ngsan.data.scenes import COLOURS, LANDMARK, SHAPES, Statement
from hf_ngsan.data.scenes.relations import DIRECTIONAL, FAMILY_OF, SYMMETRIC, centre_and_size
from hf_ngsan.data.scenes.scoring import relation_swaps
from hf_ngsan.loading.models import load_captioner
from hf_ngsan.metrics.comparison import MIN_ITEMS, compare
from hf_ngsan.reproduction import folder_name

MODELS = {
    "SAN": ["model.query_norm=null", "model.geometric_bias=[]"],
    "G-SAN": ["model.query_norm=null"],
    "NG-SAN": [],
    "NG-SAN signed": ["model.geometry_features=signed"],
}
OF_SCENES = {"SAN": "san-scenes", "NG-SAN": "ngsan-scenes", "NG-SAN signed": "ngsan-signed-scenes"}
KINDS = ("crops", "pooled", "reduced", "scenes")
GROUPS = (SYMMETRIC, DIRECTIONAL)
RELATIONS = {  # relation of this package -> relations of judged statements; "-" exchanges subject and object
    "left of": ("at the left side of", "left of"),
    "right of": ("at the right side of", "right of"),
    "above": ("above", "over"),
    "below": ("below", "under", "beneath"),
    "near": ("near", "close to"),
    "far from": ("far away from", "far from", "away from"),
    "beside": ("beside", "next to", "adjacent to", "alongside"),
    "inside": ("in", "inside", "within", "enclosed by", "-contains", "-surrounding"),
}
OURS = {name.removeprefix("-"): (ours, name[0] == "-") for ours, names in RELATIONS.items() for name in names}
Scores = dict[tuple[str, str], np.ndarray]  # (measure, group or relation) -> (items,), nan for missing values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, default=Path("features"), metavar="DIR")
    parser.add_argument("--runs", type=Path, default=Path("runs/relations"), metavar="DIR")
    parser.add_argument("--models", nargs="+", default=[*MODELS], choices=MODELS)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--no-training", action="store_true", help="score existing runs")
    parser.add_argument("changes", nargs="*", metavar="key=value", help="changes of the training config")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for kind in options.kinds:
        features, runs = options.features / ("crops" if kind == "scenes" else kind), options.runs / kind
        if not options.no_training and kind != "scenes":
            for seed, name in product(options.seeds, options.models):
                train(features, runs / f"{folder_name(name)}-{seed}", name, seed, options.changes)
        rows = [dict(row) for row in load_data(f"relations:{features}", "test")]
        judged = judged_statements(features)
        results: dict[str, list[Scores]] = {}
        for name in options.models:
            folders = [runs / f"{folder_name(name)}-{seed}" for seed in options.seeds]
            results[name] = [scores_of(folder, rows, judged) for folder in folders if (folder / "last").is_dir()]
            if kind == "scenes" and name in OF_SCENES:
                results[name] = [scores_of(OF_SCENES[name], rows, judged, from_scenes=True)]
        results["classes"] = [{("right", group): values for group, values in prior(features, rows).items()}]
        results["boxes"] = [by_boxes(judged)]
        print(f"\n{kind}: {len(rows)} photographs; {len(judged)} judged statements")
        for key in dict.fromkeys(key for scores in results.values() for seed in scores for key in seed):
            report(key, {name: [seed[key] for seed in seeds if key in seed] for name, seeds in results.items()})


def train(features: Path, folder: Path, name: str, seed: int, changes: Sequence[str]) -> None:
    data = f"data.spec=relations:{features},exchanged=true"
    command = ["train", "--config", "ngsan/relations", data, *MODELS[name], *changes, f"training.seed={seed}"]
    if features.name == "reduced":  # starts from a captioner of scenes, with the words of the objects
        command += [f"model.init_from={OF_SCENES[name]}", "data.new_words=1"]
    if hf_ngsan_command([*command, "training.tracker=null", f"training.output_dir={folder}", "--resume"]):
        raise SystemExit(1)


def scores_of(model_name: Any, rows: Sequence[dict], judged: Sequence[dict], from_scenes: bool = False) -> Scores:
    """Returns the scores of a captioner, one for each photograph (or judged statement)."""
    model, processor = load_captioner(model_name)

    def more_likely(questions: Sequence[tuple]) -> np.ndarray:
        """Returns whether statements are more likely than the other relation."""
        random = np.random.default_rng(0)
        likelihoods = []
        for start in range(0, len(questions), 128):
            batch = [question[2:] for question in questions[start : start + 128]]
            if from_scenes:
                batch = [coded(*question[1:], random) for question in questions[start : start + 128]]
            pair = [[statement.caption, opposite(statement).caption] for _, _, statement in batch]
            values = [log_likelihoods(model, processor, batch, [texts[side] for texts in pair]) for side in (0, 1)]
            likelihoods.append(values[0] > values[1])
        return np.concatenate(likelihoods)

    scores: Scores = {}
    for measure, questions in (("right", asked(rows)), ("follow", exchanged(rows))):
        answers = more_likely(questions)
        for group in GROUPS:
            scores[measure, group] = per_photograph(len(rows), questions, answers, group)
    columns = ("image_id", "objects", "visual_features", "visual_boxes", "statement")
    return scores | by_relation(judged, more_likely([tuple(row[name] for name in columns) for row in judged]))


def coded(names: list[str], _: np.ndarray, boxes: np.ndarray, statement: Statement, random: Any) -> tuple:
    """Returns features, boxes and statement of a scene in which the objects of a statement, and up to four others, are
    coloured shapes."""
    pair = [names.index(statement.subject), names.index(statement.other)]
    chosen = pair + [place for place, name in enumerate(names) if name not in (statement.subject, statement.other)][:4]
    colours, shapes = (
        random.permutation(len(COLOURS))[: len(chosen)],
        random.integers(len(SHAPES) - 1, size=len(chosen)),
    )
    shapes[1] = SHAPES.index(LANDMARK)
    features = np.concatenate([np.eye(len(COLOURS))[colours], np.eye(len(SHAPES))[shapes]], axis=1)
    subject, other = (f"{COLOURS[colours[place]]} {SHAPES[shapes[place]]}" for place in (0, 1))
    order = random.permutation(len(chosen))
    return features[order], boxes[chosen][order], Statement(subject, statement.relation, other)


@torch.inference_mode()
def log_likelihoods(model: Any, processor: Any, items: Sequence, texts: Sequence[str]) -> np.ndarray:
    inputs = processor(visual_features=[item[0] for item in items], visual_boxes=[item[1] for item in items])
    labels = processor(
        visual_features=[item[0] for item in items], visual_boxes=[item[1] for item in items], captions=list(texts)
    )["labels"]
    logits = model(**inputs, labels=labels).logits.float().log_softmax(-1)
    values = logits.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
    return values.masked_fill(labels < 0, 0).sum(-1).numpy()


def opposite(statement: Statement) -> Statement:
    [other] = {*statement.family.relations} - {statement.relation}
    return Statement(statement.subject, other, statement.other)


def asked(rows: Sequence[dict]) -> list[tuple]:
    """Returns number of the photograph, names, features and boxes of objects, and the statement of each caption."""
    return [
        (number, row["objects"], row["visual_features"], row["visual_boxes"], Statement.from_caption(caption))
        for number, row in enumerate(rows)
        for caption in row["captions"]
    ]


def exchanged(rows: Sequence[dict]) -> list[tuple]:
    """Returns the same after two objects have exchanged boxes, with the relation that is then true."""
    questions = []
    for place, row in enumerate(rows):
        for swap in relation_swaps(row):
            before: Any = Statement.from_caption(swap.prompt.caption)
            now = Statement(before.subject, swap.answer, before.other)
            questions.append((place, row["objects"], row["visual_features"], swap.boxes, now))
    return questions


def per_photograph(count: int, questions: Sequence[tuple], answers: Sequence[float], group: str) -> np.ndarray:
    """Returns the share of right answers for each photograph, nan without questions of the group."""
    by_photograph: list[list[float]] = [[] for _ in range(count)]
    for (number, *_, statement), answer in zip(questions, answers, strict=True):
        if statement.family.group == group:
            by_photograph[number].append(float(answer))
    return np.array([np.mean(values) if values else np.nan for values in by_photograph])


def prior(features: Path, rows: Sequence[dict]) -> dict[str, np.ndarray]:
    """Gives the most frequent answer of the training captions for the two classes, the subject, or the family."""
    counts: defaultdict[tuple, Counter] = defaultdict(Counter)
    for captions in load_data(f"relations:{features}", "train")["captions"]:
        for statement in map(Statement.from_caption, captions):
            for key in keys_of(statement):
                counts[key][statement.relation] += 1
    questions = asked(rows)
    answers = []
    for *_, statement in questions:
        known = next(counts[key] for key in keys_of(statement) if counts[key])
        first, second = (known[relation] for relation in statement.family.relations)
        ours = known[statement.relation]
        answers.append(0.5 if first == second else float(ours == max(first, second)))
    return {group: per_photograph(len(rows), questions, answers, group) for group in GROUPS}


def keys_of(statement: Any) -> list[tuple]:
    family = statement.family.name
    return [(family, statement.subject, statement.other), (family, statement.subject), (family,)]


def judged_statements(features: Path) -> list[dict]:
    """Returns the judged statements with a relation of this package, about two detected classes."""
    judged = []
    for row in with_arrays(load_from_disk(str(features))["statements"]):
        names = list(row["objects"])
        for text, label in zip(row["statements"], row["labels"], strict=True):
            words = text.lower().removeprefix("the ").rstrip(".")
            for name, (relation, turned) in OURS.items():
                subject, _, other = words.partition(f" {name} the ")
                subject = subject.removesuffix(" is")
                if subject in names and other in names and subject != other:
                    pair = (other, subject) if turned else (subject, other)
                    judged.append({**row, "statement": Statement(pair[0], relation, pair[1]), "label": bool(label)})
                    break
    return judged


def by_relation(judged: Sequence[dict], answers: Sequence[bool]) -> Scores:
    """Returns for each relation, and for all, whether the answers to the statements agree with people."""
    agrees = np.array([bool(answer) == row["label"] for answer, row in zip(answers, judged, strict=True)], dtype=float)
    relations = np.array([row["statement"].relation for row in judged])
    groups = np.array([FAMILY_OF[relation].group for relation in relations])
    scores: Scores = {("judged", "all"): agrees}
    for names, values in ((groups, GROUPS), (relations, RELATIONS)):
        for value in values:
            scores["judged", value] = np.where(names == value, agrees, np.nan)
    return scores


def by_boxes(judged: Sequence[dict]) -> Scores:
    """Answers from the best boxes of both classes: by the signs of directions, or else the nearer answer."""
    answers = []
    for row in judged:
        statement, names = row["statement"], list(row["objects"])
        (place, size), (its_place, its_size) = (
            centre_and_size(row["visual_boxes"][names.index(name)]) for name in (statement.subject, statement.other)
        )
        across, down = (place - its_place) / ((size + its_size) / 2)
        is_first: dict[str, Callable[[], bool]] = {
            "horizontal": lambda across=across: across < 0,
            "vertical": lambda down=down: down < 0,
            "distance": lambda across=across, down=down: np.hypot(across, down) < 2.35,
            "axis": lambda across=across, down=down: abs(down) < abs(across),
            "contact": lambda size=size, other=its_size, across=across, down=down: (
                not (max(abs(across), abs(down)) < 0.75 and (size < other).all())
            ),
        }
        answers.append(is_first[statement.family.name]() == (statement.family.relations[0] == statement.relation))
    return by_relation(judged, answers)


def report(key: tuple[str, str], results: dict[str, list[np.ndarray]]) -> None:
    """Prints the mean and deviation over seeds of each model, the number of items, and effects compared to SAN."""
    for name, seeds in results.items():
        if not seeds:
            continue
        means = [100 * np.nanmean(values) for values in seeds]
        line = f"{key[0]}, {key[1]}\t{name}\t{np.mean(means):.1f}%"
        line += f" ± {np.std(means, ddof=1):.1f}%" if len(means) > 1 else ""
        mean = np.mean(seeds, axis=0)
        there = ~np.isnan(mean)
        line += f"\tn = {there.sum()}"
        if key[0] == "judged" and there.any():
            line += "\t({:.1f} to {:.1f})".format(*wilson(float(mean[there].mean()), int(there.sum())))
        elif there.sum() >= MIN_ITEMS:
            line += "\t({:.1f} to {:.1f})".format(*compare(100 * mean[there]).interval)
        if there.sum() >= MIN_ITEMS and name != "SAN" and results.get("SAN"):
            effect = compare(100 * (mean - np.mean(results["SAN"], axis=0))[there])
            low, high = effect.interval
            line += f"\tagainst SAN {effect.difference:+.1f} ({low:+.1f} to {high:+.1f})"
        print(line, flush=True)


def wilson(share: float, number: int, z: float = 1.96) -> tuple[float, float]:
    """Returns the 95% interval of a share of few items in percent (Wilson 1927)."""
    middle = (share + z**2 / (2 * number)) / (1 + z**2 / number)
    half = z / (1 + z**2 / number) * (share * (1 - share) / number + z**2 / (4 * number**2)) ** 0.5
    return 100 * (middle - half), 100 * (middle + half)


if __name__ == "__main__":
    main()
