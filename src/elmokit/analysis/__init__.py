"""What the layers of an encoder know: probes and word senses."""
