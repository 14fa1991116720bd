import hypothesis.strategies as st
from hypothesis import given

from hf_ngsan.extraction.extract import plan_chunks
from hf_ngsan.extraction.image_list import ImageList, ListedImage
from hf_ngsan.io.shards import ShardRecord


def image_list(number: int) -> ImageList:
    return ImageList("photos", tuple(ListedImage(index, f"{index}.png") for index in range(number)))


def row(index: int) -> dict:
    return {"file_name": f"{index}.png"}


@given(st.data(), st.integers(1, 60), st.integers(1, 9), st.integers(1, 5))
def test_a_run_that_goes_on_does_what_is_missing_as_the_first_would_have(data, number, images_per_shard, batch_size):
    images = image_list(number)
    first = plan_chunks(images, None, [], {}, images_per_shard, batch_size)
    assert [i for chunk in first for batch in chunk.batches for i in batch] == list(range(number))
    done = data.draw(st.sets(st.sampled_from(first)))
    unreadable = data.draw(st.sets(st.integers(0, number - 1)))
    records = [ShardRecord(chunk.generation, chunk.number, images.checksum(None), 1, 0, "", []) for chunk in done]
    rows = {i: row(i) for chunk in done for batch in chunk.batches for i in batch if i not in unreadable}
    second = plan_chunks(images, None, records, rows, images_per_shard, batch_size)
    assert [chunk for chunk in second if not chunk.is_retry] == [chunk for chunk in first if chunk not in done]
    tried_again = {i for chunk in second if chunk.is_retry for batch in chunk.batches for i in batch}
    assert tried_again == {i for chunk in done for batch in chunk.batches for i in batch} & unreadable
    taken = {record.name for record in records}
    names = [(chunk.generation, chunk.number) for chunk in second]
    assert len(set(names)) == len(names) and not {f"shard-{g:03d}-{n:06d}" for g, n in names} & taken
