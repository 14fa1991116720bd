"""Configurations of Guo et al. 2020 and of this package's extensions, by name."""

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
        **{"key_norm": "instance", "norm_affine": True, "geometric_bias": ["content", "query", "key"]},
        **{"absolute_geometry": True, "geometry_features": "signed", "tie_word_embeddings": True},
    },
}
