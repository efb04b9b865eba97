"""The edit distance of two texts, by Hyyrö's bit-parallel algorithm.

Belongs here: this one function. It takes time for a long answer, never memory: Myers (1999), Hyyrö
(2003), "A bit-vector algorithm for computing Levenshtein and Damerau edit distances".
"""

from collections import defaultdict


def edit_distance(left: str, right: str) -> int:
    """Insertions, deletions and substitutions of characters between two texts, at least."""
    pattern, text = (left, right) if len(left) <= len(right) else (right, left)
    if not pattern:
        return len(text)
    places: defaultdict[str, int] = defaultdict(int)
    for number, character in enumerate(pattern):
        places[character] |= 1 << number
    distance, last, ones = len(pattern), 1 << (len(pattern) - 1), (1 << len(pattern)) - 1
    more, less = ones, 0  # by how much a cell is above its upper neighbour: +1, -1
    for character in text:
        equal = places.get(character, 0)
        down = equal | less
        across = (((equal & more) + more) ^ more) | equal
        up_step = less | (ones & ~(across | more))
        down_step = more & across
        distance += bool(up_step & last) - bool(down_step & last)
        up_step, down_step = (up_step << 1) | 1, down_step << 1
        more = (down_step | ~(down | up_step)) & ones
        less = up_step & down & ones
    return distance
