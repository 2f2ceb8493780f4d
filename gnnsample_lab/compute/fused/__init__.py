"""The last hop, its rows of features and the first layer's sum in one pass."""
