"""Boards, grids and drawing, of which games are built."""
