"""The GPU model: what a schedule would cost on a GPU, for hosts that have none; its fit to traces, its presets."""
