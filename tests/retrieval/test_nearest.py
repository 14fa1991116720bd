import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hf_ngsan.retrieval import nearest


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=3),
    num_queries=st.integers(1, 3),
    top_k=st.integers(1, 9),
    dtype=st.sampled_from([np.float16, np.float32]),
    data=st.data(),
)
def test_hits_are_those_of_a_sorted_list(sizes, num_queries, top_k, dtype, data):
    """Small whole numbers, so that many products are equal."""
    numbers = st.integers(-2, 2)
    rows = [data.draw(st.lists(st.tuples(numbers, numbers), min_size=size, max_size=size)) for size in sizes]
    parts = [np.array(part, dtype).reshape(-1, 2) for part in rows]
    queries = np.array(data.draw(st.lists(st.tuples(numbers, numbers), min_size=num_queries, max_size=num_queries)))
    scores, found = nearest(parts, queries.astype(np.float32), top_k)
    everything = [row for part in rows for row in part]
    for query, of_query, places in zip(queries.tolist(), scores, found, strict=True):
        products = [query[0] * x + query[1] * y for x, y in everything]
        expected = sorted(range(len(everything)), key=lambda place: (-products[place], place))[:top_k]
        assert places.tolist() == expected
        assert of_query.tolist() == [products[place] for place in expected]
