"""Checks weather.py, the rules of masks without jcm and the rest with it: `make check-climate`."""

import io
import subprocess
import sys
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import weather

# Of a Gaussian grid.
GLOBE = weather.Globe(np.degrees(np.arcsin(np.polynomial.legendre.leggauss(weather.ROWS)[0])))
FLAT = np.zeros((weather.ROWS, weather.COLUMNS))
LEAST = FLAT + 150.0


def away(latitude: float, longitude: float) -> weather.Floats:
    """Distance of all cells from a place, in km."""
    at, to = np.radians([latitude, longitude])
    point = np.array([np.cos(at) * np.cos(to), np.cos(at) * np.sin(to), np.sin(at)])
    distance: weather.Floats = np.arccos(np.clip(GLOBE.points @ point, -1, 1)).reshape(FLAT.shape) * weather.EARTH_KM
    return distance


def band(begin: tuple[float, float], end: tuple[float, float], wide_km: float) -> weather.Bools:
    """Cells along the straight line between two places, latitude and longitude of each."""
    places = np.linspace(begin, end, 60)
    near: weather.Bools = np.min([away(*place) for place in places], axis=0) < wide_km / 2
    return near


class Rivers(unittest.TestCase):
    def found(self, cells: weather.Bools, east: float = 300.0, north: float = 300.0) -> weather.Bools:
        return weather.rivers(GLOBE, np.stack([east * cells, north * cells]), LEAST)

    def test_a_long_narrow_band_to_the_pole_is_one(self) -> None:
        for begin, end, north in (
            ((25, 180), (50, 220), 300.0),
            # Over the edge of the map.
            ((25, 345), (50, 380), 300.0),
            ((-25, 180), (-50, 220), -300.0),
        ):
            cells = band(begin, end, 700)
            np.testing.assert_array_equal(self.found(cells, north=north), cells, f"{begin}")

    def test_other_shapes_and_directions_are_none(self) -> None:
        river = band((25, 180), (50, 220), 700)
        for what, cells, east, north in (
            ("a round one", away(45, 200) < 1500, 300.0, 300.0),
            ("a short one", band((35, 180), (42, 190), 600), 300.0, 300.0),
            ("one to the equator", river, 300.0, -300.0),
            ("one along a latitude", river, 400.0, 20.0),
            ("a weak one", river, 100.0, 100.0),
            ("the trade winds", band((2, 100), (17, 200), 500), 300.0, 300.0),
        ):
            self.assertTrue(cells.any(), what)
            self.assertFalse(self.found(cells, east, north).any(), what)

    def test_the_threshold_is_that_of_the_place(self) -> None:
        maps = np.zeros((100, *FLAT.shape))
        maps[:, :, :48] = np.arange(100)[:, None, None] * 10
        least = weather.thresholds(maps)
        # The 85th percentile of 0, 10, …, 990, and far from it the least of all.
        self.assertAlmostEqual(least[24, 24], 0.85 * 990, delta=0.1)
        self.assertEqual(least[24, 72], weather.RIVER_IVT_MIN)


class Cyclones(unittest.TestCase):
    def found(self, depth: float, wide_km: float, ground: weather.Floats = FLAT, latitude: float = 47.0) -> weather.Bools:
        sea_level = 101_000.0 - depth * np.exp(-((away(latitude, 2) / wide_km) ** 2))
        return weather.cyclones(GLOBE, sea_level, ground)

    def test_a_deep_low_is_one_and_only_near_its_middle(self) -> None:
        for latitude in (47.0, -47.0, 80.0):
            found = self.found(3000, 500, latitude=latitude)
            distance = away(latitude, 2)
            self.assertTrue(found[distance < 250].all(), f"{latitude}")
            self.assertFalse(found[distance > 800].any(), f"{latitude}")

    def test_shallow_wide_and_high_ones_are_none(self) -> None:
        self.assertFalse(self.found(550, 500).any())
        self.assertFalse(self.found(3000, 6000).any())
        self.assertFalse(self.found(3000, 500, FLAT + 2000.0).any())
        self.assertFalse(weather.cyclones(GLOBE, FLAT + 101_000.0, FLAT).any())

    def test_one_cell_alone_is_none(self) -> None:
        sea_level = FLAT + 101_000.0
        sea_level[36, 10] -= 3000
        self.assertFalse(weather.cyclones(GLOBE, sea_level, FLAT).any())

    def test_high_ground_is_not_in_the_ring(self) -> None:
        """What is made up under it would make a cyclone of its coast."""
        ice = away(-90, 0) < 2500
        sea_level = np.where(ice, 107_000.0, 101_000.0)
        self.assertTrue(weather.cyclones(GLOBE, sea_level, FLAT).any())
        self.assertFalse(weather.cyclones(GLOBE, sea_level, ice * 3000.0).any())


class Masks(unittest.TestCase):
    def test_a_cyclone_is_above_a_river(self) -> None:
        river = band((25, 180), (50, 220), 700)
        low = 101_000.0 - 3000 * np.exp(-((away(50, 220) / 500) ** 2))
        told = weather.mask(GLOBE, np.stack([300.0 * river] * 2), LEAST, low, FLAT)
        cyclone = weather.cyclones(GLOBE, low, FLAT)
        self.assertTrue((river & cyclone).any())
        np.testing.assert_array_equal(told, np.where(cyclone, 1, np.where(river, 2, 0)))

    def test_what_touches_is_one_object(self) -> None:
        cells = np.zeros(FLAT.shape, bool)
        cells[10, [0, 1, -1]] = cells[11, -2] = cells[30, 5] = cells[31, 6] = cells[0, 50] = True
        # By a corner over the edge, from the north and from the south.
        cells[20, 0] = cells[21, -1] = cells[41, 0] = cells[40, -1] = True
        numbers, count = weather.objects(cells)
        self.assertEqual(count, 5)
        np.testing.assert_array_equal(numbers > 0, cells)
        for one, other in (((10, 1), (11, -2)), ((30, 5), (31, 6)), ((20, 0), (21, -1)), ((41, 0), (40, -1))):
            self.assertEqual(numbers[one], numbers[other], f"{one}")

    def test_areas_are_those_of_a_globe(self) -> None:
        self.assertAlmostEqual(GLOBE.areas_km2.sum() / (4 * np.pi * weather.EARTH_KM**2), 1.0, places=9)


class Channels(unittest.TestCase):
    def test_an_atmosphere_of_one_lapse_rate_is_known(self) -> None:
        """T = 288 K - Γ z, p = 1013.25 hPa (T / 288 K)^(g / R Γ), over ground from 0 to 3,000 m."""
        power = weather.GRAVITY / (weather.GAS * weather.LAPSE)
        sigma = np.array([0, 0.05, 0.14, 0.26, 0.42, 0.6, 0.77, 0.9, 1])
        middles = (sigma[1:] + sigma[:-1]) / 2
        ground = np.linspace(0, 3000, weather.ROWS)[None, :, None] + np.zeros((1, 1, weather.COLUMNS))
        surface = 101_325.0 * (1 - weather.LAPSE * ground / 288) ** power
        pressure = middles[None, :, None, None] * surface[:, None]
        temperature = 288 * (pressure / 101_325.0) ** (1 / power)
        height = (288 - temperature) / weather.LAPSE
        state = {
            "u": np.log(pressure),
            "v": -2 * np.log(pressure),
            "temperature": temperature,
            "humidity": 0.01 + 0 * pressure,
            "geopotential": weather.GRAVITY * height,
            "pressure": surface / weather.REFERENCE_PRESSURE,
            "precipitation": 0.05 + 0 * surface,
            "skin": 290 + 0 * surface,
            "near": 289 + 0 * surface,
        }
        images, transport, told = weather.channels(state, sigma)
        self.assertEqual(images.shape, (1, len(weather.CHANNELS), *FLAT.shape))
        of = dict(zip(weather.CHANNELS, images[0], strict=True))

        def near(name: str, value: weather.Floats | float, delta: float) -> None:
            np.testing.assert_allclose(of[name], FLAT + value, rtol=0, atol=delta, err_msg=name)

        near("TMQ", 0.01 * surface[0] / weather.GRAVITY, 1e-6)
        near("U850", np.minimum(np.log(85_000.0), np.log(pressure[0, -1])), 1e-9)
        near("V850", -2 * of["U850"], 1e-9)
        near("UBOT", np.log(pressure[0, -1]), 1e-9)
        near("QREFHT", 0.01, 1e-12)
        near("PS", surface[0], 1e-6)
        # The middle of a layer is not quite where its mean temperature is.
        near("PSL", 101_325.0, 60.0)
        near("T500", 288 * (50_000 / 101_325) ** (1 / power), 0.4)
        near("Z1000", (288 - 288 * (100_000 / 101_325) ** (1 / power)) / weather.LAPSE, 5.0)
        near("PRECT", 5e-8, 1e-15)
        near("TS", 290.0, 0.0)
        near("TREFHT", 289.0, 0.0)
        np.testing.assert_allclose(of["ZBOT"], height[0, -1] - ground[0], atol=3.0)
        np.testing.assert_allclose(told, ground, atol=3.0)
        np.testing.assert_allclose(transport[:, 1], -2 * transport[:, 0])

    def test_between_levels_it_is_linear_in_the_logarithm(self) -> None:
        levels = weather.Levels(np.array([0.25, 0.5, 1.0]), np.full((1, 1, 1), 1e5))
        values = np.array([1.0, 2.0, 6.0]).reshape(1, 3, 1, 1)
        for pressure, want in ((25_000, 1), (35_355.34, 1.5), (70_710.68, 4), (1e5, 6), (1.1e5, 6), (1e4, 1)):
            self.assertAlmostEqual(levels.at(values, pressure).item(), want, places=5)


class Simulations(unittest.TestCase):
    """With jcm, which is compiled for each maker; short ones, as weather that is not thrown away says as much."""

    def test_a_unit_is_the_same_whoever_makes_it_and_when(self) -> None:
        def made(maker: weather.Maker, unit: int) -> tuple[bytes, bytes]:
            images, masks = io.BytesIO(), io.BytesIO()
            maker.maps(unit, 12, 30, images)
            maker.masks(unit, masks)
            return images.getvalue(), masks.getvalue()

        with mock.patch.object(weather, "SPIN_UP_DAYS", 5):
            one, other = weather.Maker(1), weather.Maker(1)
            first, second = made(one, 0), made(one, 1)
            self.assertEqual(made(other, 1), second)
            self.assertEqual(made(other, 0), first)
            self.assertNotEqual(first[0], second[0])
            other.seed = 2
            self.assertNotEqual(made(other, 0)[0], first[0])
            with self.assertRaisesRegex(SystemExit, "masks are asked of unit 7"):
                other.masks(7, io.BytesIO())
        images = np.frombuffer(first[0], "<f4").reshape(12, 16, weather.ROWS, weather.COLUMNS)
        self.assertEqual(len(first[1]), 12 * weather.ROWS * weather.COLUMNS)
        of = dict(zip(weather.CHANNELS, np.moveaxis(images, 1, 0), strict=True))
        # South is below: in January there the ice is colder than the sea in the north.
        self.assertLess(of["TS"][:, 0].mean(), of["TS"][:, 24].mean() - 30)
        # The Himalayas, at 30° N and 86° E, and the Pacific.
        self.assertLess(of["PS"][:, 31, 23].mean(), 75_000)
        self.assertGreater(of["PS"][:, 24, 50].mean(), 95_000)
        self.assertTrue((of["TMQ"] >= 0).all() and of["TMQ"].mean() > 5)
        self.assertTrue(((of["ZBOT"] > 250) & (of["ZBOT"] < 600)).all())
        self.assertTrue((of["Z200"] > of["Z1000"] + 9000).all())

    def test_the_script_says_what_it_is_made_of_and_what_it_does_not_know(self) -> None:
        script = Path(weather.__file__).read_text()
        command = [sys.executable, "-I", "-c", script]
        told = subprocess.run([*command, "versions"], capture_output=True, check=True, text=True)
        self.assertRegex(told.stdout, r"^jcm 3\.0\.0, dinosaur [\d.]+, JAX [\d.]+, SciPy [\d.]+\n$")
        failed = subprocess.run([*command, "1"], input="rain 0\n", capture_output=True, text=True)
        self.assertEqual((failed.returncode, failed.stdout), (1, ""))
        self.assertIn("rain 0", failed.stderr)


if __name__ == "__main__":
    unittest.main()
