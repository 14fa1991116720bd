"""Moving scenes: the captions depend only on the order of the frames."""

import numpy as np
import pytest

from hf_ngsan.data import DataError
from hf_ngsan.data.moving_scenes import ACTION_SCORES, ACTIONS, action_of, draw_clip, load_moving_scenes, make_clip


def test_a_clip_played_backwards_has_the_same_frames_and_the_opposite_caption():
    seen = set()
    for index in range(40):
        clip = make_clip(0, 0, index)
        other = type(clip)(clip.objects, clip.action, not clip.backwards, clip.places)
        frames, reverse = (np.stack([np.asarray(frame) for frame in draw_clip(each)]) for each in (clip, other))
        assert (frames == reverse[::-1]).all()
        assert {action_of(clip.captions[0]), action_of(other.captions[0])} == set(ACTIONS[clip.action])
        assert not (frames == reverse).all()
        seen.add((clip.action, clip.backwards))
    assert len(seen) == 2 * len(ACTIONS)


def test_rows_and_their_scores():
    rows = load_moving_scenes("validation", size=40, num_frames=3, image_size=16)
    assert len(rows) == 4
    assert [frame.size for frame in rows[0]["frames"]] == [(16, 16)] * 3
    captions = [texts[1] for texts in rows["captions"]]
    assert ACTION_SCORES.compute(rows, captions, None) == {"actions": 1.0, "actors": 1.0}
    wrong = ["a dog runs", captions[1], captions[1], captions[3]]
    assert 0.25 <= ACTION_SCORES.compute(rows, wrong, None)["actions"] < 1
    with pytest.raises(DataError):
        load_moving_scenes("training")
