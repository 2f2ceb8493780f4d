"""GNNLab's factored design (sections 4 and 5): samplers and trainers are ranks of their own, a global queue between.

A sampler keeps the topology, a trainer the feature cache. Samples travel marked: the sampler knows which rows the
trainers' caches hold. What they hand over lies in host memory (:mod:`.slots`); who gets which mini-batch when is
decided by one service in the process that started the ranks (:mod:`.service`).
"""
