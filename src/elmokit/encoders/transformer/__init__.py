"""BERT, GPT and their kin as encoders, through the transformers library."""
