"""The ID map from global to local ids: its implementations, and the behaviour of hash tables."""
