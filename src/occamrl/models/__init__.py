"""Classes of transition kernels: features, families and ladders."""
