"""Captioning: images and regions in, sentences out."""
