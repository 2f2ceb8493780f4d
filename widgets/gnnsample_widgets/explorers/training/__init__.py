"""Training: aggregation, mini-batches of two systems, pipelines and graphs in parts on several GPUs."""
