"""Files to networks and back; never runs a model."""
