"""Every method on CPU ranks (Gloo), drawn by the Numba twin."""
