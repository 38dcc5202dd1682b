"""The C library and its callers in NumPy: the recurrence and the token encoder for inference. No torch here."""
