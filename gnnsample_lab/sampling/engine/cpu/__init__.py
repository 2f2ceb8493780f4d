"""Applications on the CPU: the walker, one step of one sample, and what ``next`` sees."""
