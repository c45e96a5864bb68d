"""Learners of formula games: of a game and a seat in `factories`; of any payoffs in `naive` and `white_box`."""
