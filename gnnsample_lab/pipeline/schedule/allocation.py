"""How many GPUs sample and how many train, and when a sampler should help training (GNNLab, section 5.3).

Pure arithmetic: executors that run and the model that predicts them ask the same functions.
"""

from __future__ import annotations

import math

from gnnsample_lab import checks

MAX_COUNT = 2**31 - 1
"""Most GPUs, mini-batches or steps that an argument may name."""
_ROUNDING = 1e-9
"""A quotient this little above a whole number is that number: 0.3 / 0.1 is not 3 in floating point."""


def trainer_time(extract_s: float, train_s: float, pipelined: bool = True) -> float:
    """T_t: seconds between two mini-batches that leave a trainer (GNNLab, sections 5.3 and 7.3).

    Args:
        extract_s, train_s: seconds of the stages for a mini-batch; the trainer's copies of samples count as extraction,
            its exchange of gradients as training.
        pipelined: whether a trainer extracts the next mini-batch while it trains: then the longer stage counts,
            else both.

    Raises:
        TypeError, ValueError: a time that is negative or no number.
    """
    extract_s, train_s = checks.real("extract_s", extract_s, 0), checks.real("train_s", train_s, 0)
    return max(extract_s, train_s) if checks.flag("pipelined", pipelined) else extract_s + train_s


def num_samplers(gpus: int, sample_s: float, trainer_s: float, *, keep_trainer: bool = False) -> int:
    """N_s = ceil(N_g / (K + 1)) with K = T_t / T_s: GPUs that sample (GNNLab, section 5.3).

    The ceiling prefers samplers, since a sampler can help training for a while and a trainer cannot sample. Without
    that switching the ceiling is not always the best split: 8 GPUs with K = 2.7 give 3 samplers where 2 are faster.

    Args:
        gpus: N_g, all GPUs.
        sample_s: T_s, seconds of sampling a mini-batch.
        trainer_s: T_t, seconds of a trainer for a mini-batch, see ``trainer_time``.
        keep_trainer: leave at least one GPU to training where there are two: needed where samplers do not switch,
            since the formula gives all GPUs to sampling where sampling takes much longer than training.

    Returns:
        1 to ``gpus``.

    Raises:
        TypeError, ValueError: not a whole number of GPUs, or a time that is negative or no number.
    """
    gpus = checks.whole("gpus", gpus, 1, MAX_COUNT)
    sample_s, trainer_s = checks.real("sample_s", sample_s, 0), checks.real("trainer_s", trainer_s, 0)
    keep_trainer = checks.flag("keep_trainer", keep_trainer)
    longest = max(sample_s, trainer_s)
    # show: split the GPUs
    if longest == 0:
        share = 0.5
    else:  # by the longest first: sums of huge times overflow, and quotients of tiny ones
        share = (sample_s / longest) / (sample_s / longest + trainer_s / longest)
    found = min(max(math.ceil(gpus * share - _ROUNDING), 1), gpus)
    return min(found, gpus - 1) if keep_trainer and gpus > 1 else found
    # end: split the GPUs


def profit(remaining: int, trainers: int, trainer_s: float, standby_s: float) -> float:
    """P = M_r T_t / N_t - T_t': what a sampler gains by training one of the samples that wait (GNNLab, section 5.3).

    Positive where the standby trainer would end its sample before the trainers end all that wait. Then taking one
    never lengthens the epoch, where trainers do not wait for one another (``staleness=None``, as in the paper's
    measurement, section 7.8). Where they update together, each round that the standby trainer joins lasts as long as
    its own T_t', and the epoch can become longer (sampling 2 s, extraction 10, training 11, T_t' = 28, 28 mini-batches
    on 3 GPUs: 240 s for 168). The reverse does not hold: the formula lets samples be split among trainers, so it
    forgoes some gains of the last round (4 samples, 3 trainers, T_t' = 1.5 T_t: P < 0, yet switching ends the epoch
    after 1.5 T_t instead of 2 T_t).

    Args:
        remaining: M_r, samples in the global queue.
        trainers: N_t, GPUs that train all the time.
        trainer_s: T_t, see ``trainer_time``.
        standby_s: T_t', seconds that a standby trainer takes for one sample from its arrival to the end of its
            training. Its pipeline is empty at first, so this is the sum of its stages even where ``trainer_s`` is
            the longer one: with the longer one P can be positive where the epoch gets longer.

    Returns:
        Seconds; infinite where there is no trainer.

    Raises:
        TypeError, ValueError: a count or a time that is negative or no number.
    """
    remaining = checks.whole("remaining", remaining, 0, MAX_COUNT)
    trainers = checks.whole("trainers", trainers, 0, MAX_COUNT)
    trainer_s, standby_s = checks.real("trainer_s", trainer_s, 0), checks.real("standby_s", standby_s, 0)
    return math.inf if trainers == 0 else remaining / trainers * trainer_s - standby_s


def should_switch(remaining: int, trainers: int, trainer_s: float, standby_s: float) -> bool:
    """Whether a sampler that has nothing left to sample should take one of the samples that wait: P > 0.

    Args:
        remaining, trainers, trainer_s, standby_s: as for ``profit``. Nothing waits, nothing is taken.

    Raises:
        TypeError, ValueError: as ``profit``.
    """
    gain = profit(remaining, trainers, trainer_s, standby_s)
    return remaining > 0 and gain > 0
