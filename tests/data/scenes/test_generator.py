from collections import Counter

import numpy as np
import pytest

from hf_ngsan.data import make_scene
from hf_ngsan.data.scenes import FAMILIES, FEATURE_SIZE, LANDMARK, Statement, load_scenes
from hf_ngsan.data.scenes.relations import FAMILY_OF, answer_families

NUMBER = 1000


@pytest.fixture(scope="module")
def scenes():
    return [make_scene(11, 0, index) for index in range(NUMBER)]


def landmark_of(scene):
    return next(index for index, name in enumerate(scene.objects) if name.endswith(LANDMARK))


def questions(scenes):
    """Yields for every caption its scene, its statement and whether the first relation of the family is true."""
    for scene in scenes:
        for statement in map(Statement.parse, scene.captions):
            yield scene, statement, statement.family.relations.index(statement.relation) == 0


def test_scenes_are_as_described(scenes):
    for scene in scenes:
        number = len(scene.objects)
        assert 3 <= number <= 6
        assert len(set(scene.objects)) == number
        assert len({name.split()[0] for name in scene.objects}) == number
        assert sum(name.endswith(LANDMARK) for name in scene.objects) == 1
        assert scene.boxes.shape == (number, 4) and scene.boxes.dtype == np.float32
        assert scene.features.shape == (number, FEATURE_SIZE)
        assert scene.boxes.min() >= 0 and scene.boxes.max() <= 1
        assert (scene.boxes[:, 2:] - scene.boxes[:, :2] > 0.02).all()
    assert {statement.relation for _, statement, _ in questions(scenes)} == set(FAMILY_OF)
    assert set(Counter(len(scene.objects) for scene in scenes)) == {3, 4, 5, 6}


def test_captions_cover_both_groups_and_are_true(scenes):
    for scene in scenes:
        statements = [Statement.parse(caption) for caption in scene.captions]
        groups = Counter(statement.family.group for statement in statements)
        assert groups == {"directional": 2, "symmetric": 3}
        assert len({statement.family for statement in statements}) == 5
        for statement in statements:
            subject, other = (scene.boxes[scene.objects.index(name)] for name in (statement.subject, statement.other))
            answer = answer_families(subject, other)[statement.family.name]
            assert answer >= 0 and statement.family.relations[answer] == statement.relation


def non_geometric(scene, statement):
    """The information of a model without geometry: features in their order, their number and norms, and the prompt."""
    padded = np.zeros((6, FEATURE_SIZE))
    padded[: len(scene.features)] = scene.features
    subject, landmark = scene.objects.index(statement.subject), landmark_of(scene)
    places = np.eye(6)[[subject, landmark]].ravel()
    number = np.eye(7)[len(scene.objects)]
    norms = np.linalg.norm(padded, axis=1)
    return np.concatenate([padded.ravel(), padded[subject], padded[landmark], places, number, norms])


def test_a_probe_without_geometry_stays_at_chance(scenes):
    for family in FAMILIES:
        asked = [(non_geometric(s, q), first) for s, q, first in questions(scenes) if q.family == family]
        inputs, answers = np.array([x for x, _ in asked]), np.array([1.0 if first else -1.0 for _, first in asked])
        half = len(asked) // 2
        ridge = inputs[:half].T @ inputs[:half] + np.eye(inputs.shape[1])
        weights = np.linalg.solve(ridge, inputs[:half].T @ answers[:half])
        right = (np.sign(inputs[half:] @ weights) == answers[half:]).sum()
        number = len(asked) - half
        assert abs(right - number / 2) < 4.5 * np.sqrt(number) / 2, family.name


def test_descriptions_are_all_captions_in_every_order():
    captions = load_scenes("test", size=4, test=2)["captions"]
    descriptions = load_scenes("test", size=4, test=2, descriptions=True)["captions"]
    for plain, joined in zip(captions, descriptions, strict=True):
        assert [text.split(" and ")[0] for text in joined] == plain
        assert all(sorted(text.split(" and ")) == sorted(plain) for text in joined)
