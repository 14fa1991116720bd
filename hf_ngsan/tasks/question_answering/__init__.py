"""Visual question answering as classification: the answer to a question about an image, from a list of answers."""
