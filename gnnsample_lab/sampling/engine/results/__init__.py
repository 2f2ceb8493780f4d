"""The results of an application: the samples, the edges among them, how often they hold a vertex."""
