"""The recurrence and the token encoder on a CPU, for inference: in C where it can run, else by torch's libraries."""
