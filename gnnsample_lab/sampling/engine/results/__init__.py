"""What an application has grown: the samples, the edges among them, how often they hold a vertex."""
