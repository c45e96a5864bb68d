"""Programs as a GPU runs them: compiled for one without one, counted, and measured where there is one."""
