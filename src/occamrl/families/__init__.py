"""What a kernel may be: feature maps (linear families) and finite families."""
