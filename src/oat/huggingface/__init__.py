"""OAT where Hugging Face's libraries are: as a processor that needs nothing of ours, and inside language models."""
