"""One step of all samples on the GPU, by every way to share it among threads."""
