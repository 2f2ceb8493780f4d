"""What explorers show of a sampling application: every call of ``next`` run once more by Python, and its reads.

``record.py`` runs the user's own functions on recording objects, ``reads.py`` a whole step of them, and ``threads.py``
lays the calls out on the threads of a GPU.
"""
