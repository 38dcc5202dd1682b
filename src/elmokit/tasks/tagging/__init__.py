"""Sequence tagging: BiLSTM-CRF and TagLM."""
