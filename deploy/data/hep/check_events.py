"""Checks events.py with Pythia: `make check-hep`."""

import io
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np

import events

RECORD = np.dtype([("jets", "<f4", 12), ("image", "<f2", (3, 64, 64))])


def unit(maker: events.Maker, number: int, count: int) -> np.ndarray:
    out = io.BytesIO()
    maker.unit(number, count, out)
    return np.frombuffer(out.getvalue(), RECORD)


class Events(unittest.TestCase):
    def test_a_unit_is_the_same_whoever_makes_it_and_when(self) -> None:
        for kind in events.PROCESSES:
            one, other = events.Maker(1, kind), events.Maker(1, kind)
            three, four = unit(one, 3, 4), unit(one, 4, 4)
            np.testing.assert_array_equal(unit(other, 4, 4), four)
            unit(other, 9, 2)
            np.testing.assert_array_equal(unit(other, 3, 4), three)
            self.assertFalse(np.array_equal(three, four))
            self.assertFalse(np.array_equal(unit(events.Maker(2, kind), 3, 4), three))

    def test_events_are_selected_and_images_hold_what_jets_are_made_of(self) -> None:
        for kind in events.PROCESSES:
            records = unit(events.Maker(1, kind), 0, 20)
            ht, jets, fat, masses, first, second, fourth, fifth, *fat_masses, _ = records["jets"].T
            self.assertTrue((ht >= events.HT_MIN).all() and (jets >= events.JETS_MIN).all())
            self.assertTrue((first >= second).all() and (second >= fourth).all() and (fourth >= fifth).all())
            self.assertTrue((fifth >= events.JET_PT_MIN).all() and (fat >= 1).all())
            self.assertTrue((sum(fat_masses) <= masses * 1.0001).all())
            energy, part, tracks = np.moveaxis(records["image"].astype(float), 1, 0)
            pt = (energy / np.cosh(events.ETA_CENTRES)[:, None]).sum((1, 2))
            self.assertTrue((pt > ht).all() and (pt < 2 * ht).all())
            self.assertTrue(((0 <= part) & (part <= 1) & ((energy > 0) | (part == 0))).all())
            self.assertTrue((tracks == np.round(tracks)).all())
            self.assertTrue((tracks.sum((1, 2)) > 20).all())

    def test_cells_are_where_particles_go(self) -> None:
        detector = events.Detector(np.random.default_rng(1))
        eta, phi, pt = 1.0, 3.0, 100.0
        at = [pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta), pt * np.cosh(eta)]
        photon, neutron = [*at, 0, 1], [*at, 0, 2]
        sums = np.zeros((3, 64, 64))
        for _ in range(400):
            sums += detector.image(np.array([photon, neutron]))
        cell = int((eta + 2.5) / 5 * 64), int((phi + np.pi) / (2 * np.pi) * 64)
        for which, sigma in ((0, 0.101 * at[3] ** 0.5), (1, 0.5205 * at[3] ** 0.5)):
            self.assertEqual(sums[which].nonzero(), cell)
            self.assertAlmostEqual(sums[which][cell] / 400, at[3], delta=5 * sigma / 20)
        self.assertEqual(sums[2].sum(), 0)

        # A charged one leaves a track where it starts to, and bends: by asin(0.345 / pT), over the edge at π.
        for charge, pt, row in ((-1, 2.0, cell[0]), (1, 0.3, None)):
            slow = [pt * np.cos(phi), pt * np.sin(phi), pt * np.sinh(eta), pt * np.cosh(eta), charge, 2]
            energies, tracks = np.zeros((64, 64)), 0.0
            for _ in range(400):
                _, hadronic, found = detector.image(np.array([slow]))
                energies += hadronic
                tracks += found[cell]
            bent = events.wrapped(phi - charge * np.arcsin(0.345 / pt)) if row is not None else None
            where = [] if bent is None else [(row, int((bent + np.pi) / (2 * np.pi) * 64))]
            self.assertEqual(list(zip(*energies.nonzero(), strict=True)), where)
            self.assertAlmostEqual(tracks / 400, 0.95 if pt > 1 else 0.70, delta=0.1)

    def test_background_that_is_given_up_would_not_be_selected(self) -> None:
        """All of it is made here, and what the hook says is compared with what is selected."""

        class Noted(events.GiveUp):
            given_up = False

            def doVetoPT(self, position: int, event: object) -> bool:
                self.given_up = super().doVetoPT(position, event)
                return False

        noted, kept = Noted(), events.GIVE_UP
        events.GIVE_UP = noted
        try:
            maker = events.Maker(1, "background")
        finally:
            events.GIVE_UP = kept
        detector = events.Detector(np.random.default_rng(1))
        selected = lost = given_up = 0
        for _ in range(2000):
            if maker.pythia.next():
                electromagnetic, hadronic, _ = detector.image(events.particles_of(maker.pythia.event))
                is_selected = maker.jets.features(electromagnetic + hadronic) is not None
                given_up += noted.given_up
                selected += is_selected
                lost += is_selected and noted.given_up
        self.assertGreater(given_up, 1200)
        self.assertGreater(selected, 80)
        self.assertLessEqual(lost, 1)

    def test_the_script_writes_records_alone_and_ends_with_its_reader(self) -> None:
        script = Path(events.__file__).read_text()
        command = [sys.executable, "-I", "-c", script, "1"]
        asked = "signal 0 2\nbackground 1 1\nsignal 0 2\n"
        done = subprocess.run(command, input=asked.encode(), capture_output=True, check=True)
        records = np.frombuffer(done.stdout, RECORD)
        np.testing.assert_array_equal(records[:2], records[3:])
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            assert child.stdin and child.stdout
            child.stdin.write(b"signal 0 100000\n")
            child.stdin.flush()
            child.stdout.read(RECORD.itemsize)
            child.stdout.close()
            self.assertNotEqual(child.wait(60), 0)


if __name__ == "__main__":
    unittest.main()
