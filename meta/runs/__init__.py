"""How a run is started, kept, timed and reported."""
