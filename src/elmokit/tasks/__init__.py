"""What vectors are good for: labels, metrics and the networks trained on the layers of a frozen encoder."""
