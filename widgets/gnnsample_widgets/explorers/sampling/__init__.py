"""k-hop sampling: one sample, its work per hop, the queue of tasks and the ID map."""
