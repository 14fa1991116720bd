"""Embeds photographs with Ray Data, on one machine or a cluster, for a search by text.

    python examples/ray/embed.py photos embeddings
    python examples/ray/embed.py s3://bucket/photos s3://bucket/embeddings --workers 8 --gpus 1
    python examples/ray/embed.py parquet:rows embeddings --image-column image --id-column image_id

The model adds `embedding`; `mapping.py` describes how a run resumes.
"""

from mapping import make_parser, map_images

from hf_ngsan.scaling import Embedder

if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--model", default="mhsan-photos", help="name or folder of a dual encoder (%(default)s)")
    options = parser.parse_args()
    map_images(Embedder, options, model=options.model)
