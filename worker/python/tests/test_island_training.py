"""Groups whose model is sharded by FSDP2 train as one process does, and as groups that have it whole."""

import unittest

from islands import ALONE, IslandCase, distance
from runs import DILOCO, Keys


class Equality(IslandCase):
    """`sync` is synchronous: as one process on the union of the batches."""

    def check(self, groups: list[int], keys: Keys = {}) -> None:
        run = self.trained(groups, keys, 50)
        initial = self.same(run, "initial", groups)
        steps = list(self.in_one_process(run, groups))
        self.assertEqual(len(steps), 50)
        net = steps[-1]
        names = [name for name, _ in net.named_parameters()]
        got = self.same(run, "state", groups)
        self.assertLess(distance(got, net.state_dict(), names), 1e-6)
        self.assertGreater(distance(got, initial, names), 0.1)

    def test_two_islands_of_two(self) -> None:
        self.check([2, 2])

    def test_islands_of_four_and_of_two_beside_a_rank_with_the_whole_model(self) -> None:
        self.check([4, 2, 1])

    def test_islands_of_three_and_of_two_whose_rows_do_not_divide(self) -> None:
        self.check([3, 2, 1])

    def test_a_rank_alone_may_have_its_model_sharded_too(self) -> None:
        self.check([1], ALONE)


class AsAPlainGroup(IslandCase):
    """An island trains as a group does whose ranks have the whole model."""

    def check(self, keys: Keys) -> None:
        keys = {"train.consistency": "sync", **keys}
        whole, island = (self.trained([2], {**keys, "script.whole": w}, 24) for w in (True, False))
        states = [self.same(run, "state", [2]) for run in (whole, island)]
        names = [name for name, values in states[0].items() if values.is_floating_point()]
        self.assertLess(distance(states[1], states[0], names), 1e-5)
        self.assertGreater(distance(states[1], self.state(island, "initial", "0-0"), names), 0.01)

    def test_with_statistics_and_gradients_that_are_shortened(self) -> None:
        self.check({"script.model": "statistics", "optimizer.clip_norm": 0.5, "optimizer.name": "adam"})

    def test_with_several_batches_for_a_step(self) -> None:
        self.check({"script.count": 2, "train.batches_per_step": 2, "script.norm": 0.5})

    def test_with_local_steps(self) -> None:
        self.check(DILOCO)

    def test_with_exchanges_behind_the_next_step(self) -> None:
        # Statistics of the last step, which is not exchanged, would be each rank's own.
        self.check({"train.overlap": 1})

    def test_with_answers_that_are_differences(self) -> None:
        self.check({"exchange.down": "bf16", "exchange.up": "bf16"})


if __name__ == "__main__":
    unittest.main()
