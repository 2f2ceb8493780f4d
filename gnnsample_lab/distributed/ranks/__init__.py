"""Ranks: processes that run one function together, started from a notebook, warm between its cells.

Engines of our own
------------------
ipyparallel 9.2 was tried first, for engines that stay warm between cells are what a slider needs. It installs (310 kB
and one dependency), listens on loopback alone and signs its messages, and its engines do stay warm: the first call
imported torch in 6 s, the second in 10 us. It is not used, because of what it needs and how it fails. Two engines on
two cores:

- are 12 processes (controller, seven schedulers and monitors, two engines, two nannies) that listen on about thirty
  ports and take 11 s to start; two ranks here are two processes with inherited pipes;
- one of them was killed while the other was at work: nothing was reported for the 30 s that the test waited, and the
  next call was ``KeyError: 1``; ranks must end together, with one error that names rank and stage;
- their parent was killed: all processes were still there half a minute later; a rank here ends when its pipe closes.

:class:`~.run.Ranks` has what is left of the idea: processes that import torch and meet once, and take one function
after another.

What travels
------------
Functions, arguments and results are pickled by cloudpickle, so that functions of notebook cells and closures work. This
is the one exception to "nothing is unpickled": bytes travel through pipes that this process made and its own children
inherited, and nothing is unpickled before the HMAC of its number and content under a key of this start is checked
(:mod:`.wire`). Ranks on other hosts are started by ``torchrun`` and get no functions (:mod:`.hosts`).
"""
