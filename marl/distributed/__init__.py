"""The same learners in environments of other libraries: in one process, in threads, on a cluster."""
