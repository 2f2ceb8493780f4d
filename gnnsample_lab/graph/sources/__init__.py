"""Where graphs come from: OGB, SNAP, NumPy files, NetworkX, PyTorch Geometric; reading, checking, downloading."""
