"""The biLM as an encoder."""
