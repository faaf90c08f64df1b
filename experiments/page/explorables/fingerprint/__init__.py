"""Which algorithm is it? Measured residual factors against families of algorithms, with the exact residual."""
