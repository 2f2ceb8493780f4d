"""What the rows of FastGL say of their records."""
