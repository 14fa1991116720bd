"""Extracts visual features of photographs with Ray Data, on one machine or a cluster.

    python examples/ray/extract.py photos features --backbone efficientnet-lite2
    python examples/ray/extract.py s3://bucket/photos s3://bucket/features --backbone microsoft/resnet-50 --gpus 1
    python examples/ray/extract.py parquet:rows features --backbone efficientnet-lite2 --id-column image_id

The model adds the columns of the feature contract; `mapping.py` describes how a run resumes.
"""

from mapping import make_parser, map_images

from hf_ngsan.scaling import ImageEncoder

if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--backbone", required=True, help="name or folder of a backbone or detection model")
    options = parser.parse_args()
    map_images(ImageEncoder, options, backbone=options.backbone)
