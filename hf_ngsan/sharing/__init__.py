"""Sharing models: the folder of a checkpoint as it goes to the Hub, its card, and its upload."""

from .upload import UploadError, push_to_hub, upload_checkpoint
from .upload_folder import check_checkpoint, write_checkpoint
