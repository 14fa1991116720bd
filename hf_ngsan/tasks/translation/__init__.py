"""Translation of sentences from one language into another."""
