"""One training loop for tokenizers and policies."""
