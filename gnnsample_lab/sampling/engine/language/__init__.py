"""The language of sampling functions: what users write, how it is checked and compiled."""
