"""Captions photographs with Ray Data, on one machine or a cluster.

    python examples/ray/caption.py photos captions
    python examples/ray/caption.py s3://bucket/photos s3://bucket/captions --workers 8 --gpus 1
    python examples/ray/caption.py parquet:rows captions --image-column image --id-column image_id

The model adds `caption` and `score`, the mean log-probability of its words; `mapping.py` describes how a run resumes.
"""

from mapping import make_parser, map_images

from hf_ngsan.scaling import Captioner

if __name__ == "__main__":
    parser = make_parser(__doc__)
    parser.add_argument("--model", default="ngsan-photos", help="name or folder of a captioner (%(default)s)")
    parser.add_argument("--num-beams", type=int, default=3)
    options = parser.parse_args()
    map_images(Captioner, options, model=options.model, num_beams=options.num_beams)
