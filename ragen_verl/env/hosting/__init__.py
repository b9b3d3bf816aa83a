"""Places where the calls of environments run: threads, worker processes, and servers behind HTTP."""
