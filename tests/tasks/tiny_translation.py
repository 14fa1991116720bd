"""Parallel text of a tiny language, and a config of a translator with very short epochs."""

from itertools import product
from pathlib import Path

SUBJECTS = {"A dog": "Ein Hund", "A cat": "Eine Katze", "A man": "Ein Mann", "A girl": "Ein Mädchen"}
VERBS = {"runs": "läuft", "sleeps": "schläft", "sings": "singt"}
PLACES = {"here": "hier", "outside": "draußen", "now": "jetzt"}
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 24, "dropout": 0.0}


def write_pairs(folder: Path) -> str:
    """Writes 36 sentences as the splits train, val and test; returns the dataset string."""
    pairs = []
    for subject, verb, place in product(SUBJECTS, VERBS, PLACES):
        pairs.append((f"{subject} {verb} {place}.", f"{SUBJECTS[subject]} {VERBS[verb]} {PLACES[place]}."))
    folder.mkdir(parents=True, exist_ok=True)
    for split, chosen in {"train": pairs, "val": pairs[::6], "test": pairs[::5]}.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(pair[side] + "\n" for pair in chosen)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return f"parallel:{folder},source=en,target=de"


def tiny_sections(folder: Path, model=(), data=(), **training) -> dict:
    """Sections of a training config; the run is in `folder / "run"`."""
    settings = {"epochs": 3, "batch_tokens": 60, "learning_rate": 0.01, "warmup_updates": 10, "tracker": None}
    settings |= {"num_threads": 1, "output_dir": str(folder / "run"), **training}
    return {
        "model": {**SIZES, "model_type": "nsa_transformer", **dict(model)},
        "data": {"spec": write_pairs(folder / "text"), "vocab_size": 310, "max_length": 30, **dict(data)},
        "training": settings,
        "evaluation": {"num_beams": 2, "max_new_tokens": 12, "batch_size": 4, "every_epochs": 20},
    }
