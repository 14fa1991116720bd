"""The configurations of tables 1-4 of Guo et al. 2020 and of this package's extensions, by name."""

import itertools

NORMS = (None, "instance", "layer", "batch")
KINDS = ("content", "query", "key")
BIASES = [list(kinds) for size in range(4) for kinds in itertools.combinations(KINDS, size)]

FAMILY = {
    "SAN": {"query_norm": None, "geometric_bias": []},
    "N-SAN": {"query_norm": "instance", "geometric_bias": []},
    "G-SAN": {"query_norm": None, "geometric_bias": ["query"]},
    "NG-SAN": {},
}
REPRESENTATIVES = {
    **FAMILY,
    "signed": {"geometry_features": "signed"},
    "absolute": {"geometric_bias": [], "absolute_geometry": True},
    "batch-normalized": {"query_norm": "batch", "key_norm": "layer", "norm_affine": True},
    "everything": {
        "key_norm": "instance",
        "norm_affine": True,
        "geometric_bias": ["content", "query", "key"],
        "absolute_geometry": True,
        "geometry_features": "signed",
        "tie_word_embeddings": True,
    },
}


def describe(**fields) -> str:
    """A short test id: the values that are not off."""
    parts = []
    for name, value in fields.items():
        if value is True:
            parts.append(name)
        elif value:
            parts.append("+".join(value) if isinstance(value, list) else f"{name}={value}")
    return ",".join(parts) or "plain"


TABLES = {
    describe(**fields): fields
    for fields in (
        # tables 1, 2 and 3: which norm on queries and keys, with and without parameters
        *(
            {"query_norm": query, "key_norm": key, "norm_affine": affine, "geometric_bias": []}
            for query, key, affine in itertools.product(NORMS, NORMS, (False, True))
            if query or key or not affine
        ),
        # table 4: which geometry, on vanilla and on normalized attention
        *(
            {"query_norm": query, "geometric_bias": kinds, "geometry_features": features, "absolute_geometry": absolute}
            for query, kinds, features, absolute in itertools.product(
                (None, "instance"), BIASES, ("unsigned", "signed"), (False, True)
            )
        ),
    )
}
