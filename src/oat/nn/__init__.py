"""Building blocks that tokenizers and policies share."""
