"""Sharing of models on the Hub: the folder of a checkpoint, its card, and its upload ([`~hf_ngsan.sharing.upload`])."""

from .upload import UploadError, check_checkpoint, push_to_hub, upload_checkpoint, write_checkpoint
