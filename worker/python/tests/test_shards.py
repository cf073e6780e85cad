"""Which values of a sharded model go from whom to whom."""

import math
import random
import unittest

from tradewind._shards import Chunk, Piece, Range, Tensor, plan, rows


def laid_out(shapes: list[tuple[int, ...]]) -> list[Tensor]:
    tensors, begin = [], 0
    for number, shape in enumerate(shapes):
        tensors.append(Tensor(number, begin, shape))
        begin += math.prod(shape)
    return tensors


def dealt(elements: int, block: int, ranks: int) -> list[list[Range]]:
    """Blocks in turn."""
    slices: list[list[Range]] = [[] for _ in range(ranks)]
    for at, begin in enumerate(range(0, elements, block)):
        slices[at % ranks].append((begin, min(begin + block, elements)))
    return slices


class Shards(unittest.TestCase):
    def test_rows_are_those_of_torch_chunk(self) -> None:
        for extent, ranks, want in (
            (8, 4, [2, 2, 2, 2]),
            (5, 4, [2, 2, 1, 0]),
            (1, 3, [1, 0, 0]),
            (7, 1, [7]),
        ):
            self.assertEqual([end - begin for begin, end in rows(extent, ranks)], want)

    def test_a_piece_is_held_by_one_and_exchanged_by_one(self) -> None:
        # Three rows of two: rank 0 holds the first two. Blocks of four: rank 1 exchanges the second.
        tensors, slices = laid_out([(3, 2)]), dealt(6, 4, 2)
        own, other = Piece((0, 4), 0, (0, 4)), Piece((4, 6), 0, (0, 2))
        self.assertEqual(plan(tensors, slices, 0, 100), [Chunk(0, [[own], []], [[own], []], [0])])
        self.assertEqual(plan(tensors, slices, 1, 100), [Chunk(0, [[], [other]], [[], [other]], [0])])

    def test_every_value_goes_once_from_its_holder_to_who_exchanges_it(self) -> None:
        for seed in range(200):
            draw = random.Random(seed)
            shapes = [tuple(draw.randint(1, 7) for _ in range(draw.randint(1, 3))) for _ in range(draw.randint(1, 6))]
            tensors = laid_out(shapes)
            elements = sum(math.prod(shape) for shape in shapes)
            ranks, chunk = draw.randint(1, 5), draw.randint(1, 20)
            # Buffers lie behind the parameters, and belong to nobody's rows.
            slices = dealt(elements + draw.randint(0, 5), draw.randint(1, 9), ranks)
            plans = [plan(tensors, slices, rank, chunk) for rank in range(ranks)]
            times = [0] * elements
            with self.subTest(seed=seed):
                for holder in range(ranks):
                    for owner in range(ranks):
                        self.check_pair(plans, holder, owner, tensors, slices, times)
                self.assertEqual(set(times), {1})
                for chunks in plans:
                    self.check_ends(chunks)

    def check_pair(
        self,
        plans: list[list[Chunk]],
        holder: int,
        owner: int,
        tensors: list[Tensor],
        slices: list[list[Range]],
        times: list[int],
    ) -> None:
        """Both say the same of what passes between them."""
        sent = [(chunk.number, chunk.held[owner]) for chunk in plans[holder] if chunk.held[owner]]
        received = [(chunk.number, chunk.sliced[holder]) for chunk in plans[owner] if chunk.sliced[holder]]
        self.assertEqual(sent, received)
        for _, pieces in sent:
            for piece in pieces:
                begin, end = piece.flat
                self.assertTrue(any(first <= begin and end <= last for first, last in slices[owner]))
                tensor = tensors[piece.tensor]
                first, _ = rows(tensor.shape[0], len(slices))[holder]
                row = math.prod(tensor.shape[1:])
                self.assertEqual(begin, tensor.begin + first * row + piece.shard[0])
                self.assertEqual(end - begin, piece.shard[1] - piece.shard[0])
                for at in range(begin, end):
                    times[at] += 1

    def check_ends(self, chunks: list[Chunk]) -> None:
        """A parameter has ended with its last piece, and not before."""
        ended: set[int] = set()
        for chunk in chunks:
            held = {piece.tensor for pieces in chunk.held for piece in pieces}
            self.assertFalse(held & ended)
            ended |= set(chunk.ended)
        self.assertEqual(ended, {piece.tensor for chunk in chunks for pieces in chunk.held for piece in pieces})


if __name__ == "__main__":
    unittest.main()
