"""K-hop neighbour sampling: the spec, the plan and memory of a launch, and every strategy's kernels."""
