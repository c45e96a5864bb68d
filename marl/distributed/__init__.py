"""The same learners where environments live on hosts: in one process, in threads, on a cluster."""
