"""What a mini-batch shares with the one before it, and the order of mini-batches that shares most."""
