"""Feature rows over ranks: caches that are copies of each other or one cache together, and how rows travel."""
