"""Methods on GPU ranks (NCCL). A module here has ``engine(setup)``, as :mod:`..engines` says."""
