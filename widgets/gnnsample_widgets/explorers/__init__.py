"""The explorers, by what they look at: sampling, transit-parallel kernels, walks, features, training."""
