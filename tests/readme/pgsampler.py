"""What the rows of PGSampler say of their records."""
