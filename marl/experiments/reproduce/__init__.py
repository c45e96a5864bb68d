"""The experiments of papers, and whether their figures are reproduced."""
