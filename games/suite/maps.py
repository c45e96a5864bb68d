"""Layouts of the presets: maps of our own in the sizes of those of SocialJax (Guo et al., 2025), arXiv:2503.14576."""

from __future__ import annotations

# 16 x 22: patches of apples that all can reach.
HARVEST_OPEN = (
    "PP..A....A..A....A..PP",
    "...AAA..AAAAAA..AAA...",
    "....A....A..A....A....",
    "PP..................PP",
    ".A.......PPPP.......A.",
    "AAA....A.PPPP.A....AAA",
    ".A....AAA....AAA....A.",
    "PP.....A......A.....PP",
    "PP.....A......A.....PP",
    ".A....AAA....AAA....A.",
    "AAA....A.PPPP.A....AAA",
    ".A.......PPPP.......A.",
    "PP..................PP",
    "....A....A..A....A....",
    "...AAA..AAAAAA..AAA...",
    "PP..A....A..A....A..PP",
)
# 15 x 22: two rooms of apples, each with one door that one player can guard.
HARVEST_CLOSED = (
    "PPPPPPPPPPPPPPPPPPPPPP",
    "P....................P",
    "P.########..########.P",
    "P.#..A...#..#...A..#.P",
    "P.#.AAA..#..#..AAA.#.P",
    "P.#..A...#..#...A..#.P",
    "P.#...A..#..#..A...#.P",
    "P.#..AAA......AAA..#.P",
    "P.#...A..#..#..A...#.P",
    "P.#..A...#..#...A..#.P",
    "P.#.AAA..#..#..AAA.#.P",
    "P.#..A...#..#...A..#.P",
    "P.########..########.P",
    "P....................P",
    "PPPPPPPPPPPPPPPPPPPPPP",
)
# 15 x 22: two rooms of apples; the left one has two doors, so that it takes two players to guard it.
HARVEST_PARTNERSHIP = (
    "PPPPPPPPPPPPPPPPPPPPPP",
    "P....................P",
    "P.########..########.P",
    "P.#..A...#..#...A..#.P",
    "P.#.AAA..#..#..AAA.#.P",
    "P.#..A......#...A..#.P",
    "P.#...A..#..#..A...#.P",
    "P.#..AAA.#....AAA..#.P",
    "P.#...A..#..#..A...#.P",
    "P.#..A......#...A..#.P",
    "P.#.AAA..#..#..AAA.#.P",
    "P.#..A...#..#...A..#.P",
    "P.########..########.P",
    "P....................P",
    "PPPPPPPPPPPPPPPPPPPPPP",
)
# 19 x 28: a river above and an orchard below, a walk apart.
CLEANUP_LARGE = (
    "HHHRRHHHHRRHHHRRHHHHRRHHHHRR",
    "HHRRHHHRRHHHRRHHHHRRHHHHRRHH",
    "HRRHHHRRHHHRRHHHHRRHHHHRRHHH",
    "RRHHHRRHHHRRHHHHRRHHHHRRHHHH",
    "RHHHRRHHHRRHHHHRRHHHHRRHHHHR",
    "............................",
    ".P...P...P...P...P...P...P..",
    "............................",
    "...P...P...P...P...P...P...P",
    "............................",
    ".P...P...P...P...P...P...P..",
    "............................",
    "............................",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAA",
)
# 16 x 11: coins may lie on every cell.
COINS_LARGE = (
    "PCCCCCCCCCP",
    *("CCCCCCCCCCC",) * 6,
    "CCCCPCPCCCC",
    "CCCCPCPCCCC",
    *("CCCCCCCCCCC",) * 6,
    "PCCCCCCCCCP",
)
