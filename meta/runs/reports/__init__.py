"""Pages of runs for a browser: the report of one run, several runs side by side, claims of papers."""
