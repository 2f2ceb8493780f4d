"""The ID map, from global ids to local ones: the ladder of its rungs, and what a hash table does."""
