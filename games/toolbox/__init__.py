"""What games are built of and drawn with."""
