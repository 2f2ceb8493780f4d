"""What the rows of GNNLab say of their records."""
