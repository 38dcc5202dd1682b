"""The networks: pure torch, no files, no text."""
