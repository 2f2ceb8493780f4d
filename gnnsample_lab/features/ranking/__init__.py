"""Hotness: which vertices mini-batches visit most, counted or predicted."""
