"""Training on all ranks of several hosts: `torchrun` starts this file on each, and the ranks join and train.

Run the same line on every host, with the name of one of them for HOST0:

    torchrun --nnodes=2 --nproc-per-node=2 --rdzv-backend=c10d --rdzv-endpoint=HOST0:29500 --rdzv-id=lab \
        notebooks/scripts/train_on_hosts.py --graph arxiv-like --system dsp-seq

`lab.distributed.torchrun_line` prints such a line. Each host has this file, the library and the graph. Every rank
samples its slice of every mini-batch, gradients are averaged over all ranks, and so the losses are those of one device.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import gnnsample_lab as lab


def main(arguments: Sequence[str] | None = None) -> list[float]:
    """Join, train, print the result once, return the loss of every step."""
    parser = argparse.ArgumentParser(description="Train on all ranks of a torchrun job.")
    parser.add_argument("--graph", default="arxiv-like", help="a name of lab.datasets()")
    parser.add_argument("--scale", type=float, default=1.0, help="of a synthetic graph")
    parser.add_argument("--system", default="dsp-seq", help="a name of lab.systems()")
    parser.add_argument("--model", default="sage")
    parser.add_argument("--fanouts", type=int, nargs="+", default=[10, 5])
    parser.add_argument("--batch-size", type=int, default=1024, help="seeds of a step, all ranks together")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    chosen = parser.parse_args(arguments)

    rank = lab.distributed.join(chosen.device)
    graph = lab.load(chosen.graph, scale=chosen.scale)
    result = lab.train(
        graph,
        chosen.model,
        chosen.system,
        ranks=rank,  # every process of the job is one, and calls this with the same arguments
        fanouts=chosen.fanouts,
        batch_size=chosen.batch_size,
        epochs=chosen.epochs,
        seed=chosen.seed,
    )
    if rank.index == 0:
        print(result)
        print(result.to_frame()[["epoch", "loss", "accuracy", "total_us"]].to_string(index=False))
    return result.losses


if __name__ == "__main__":
    main()
