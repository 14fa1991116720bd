"""Sharing models on the Hub: checkpoint folder, model card, and upload ([`~hf_ngsan.sharing.upload`])."""

from .cards import record
from .export import export_model
from .upload import UploadError, check_checkpoint, push, push_to_hub, upload_checkpoint, write_checkpoint
