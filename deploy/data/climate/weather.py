"""Makes maps of the weather with a simulated atmosphere, and masks of extreme weather on them, for `tradewind data make
climate`.

    python weather.py 1 < requests > records     # the seed of all random numbers
    python weather.py versions                   # what decides what is made, in one line

It needs jcm, which is under the Apache licence, with JAX. Two requests are known, a line each; numbers in records are
little-endian:

    maps UNIT MAPS DAY    so many maps, 12 hours apart, of a simulation of its own that begins on that day of a year:
                          for each f32 [16, 48, 96], the channels in the order of `CHANNELS`
    masks UNIT            for each of these maps u8 [48, 96]: 0 for background, 1 in a cyclone, 2 in an atmospheric
                          river

Rows go from south to north, on the latitudes of a Gaussian grid; columns from the meridian of Greenwich to the east,
once around the globe, 3.75 degrees each.

The atmosphere is jcm: the physics of SPEEDY (F. Molteni 2003, "Atmospheric simulations using a GCM with simplified
physical parametrizations") on a spectral dynamical core, at T31 with eight levels, with the mountains, seas, ice and soil
of a mean year that come with it. A simulation begins at rest and without moisture, disturbed by what follows from the
seed; the weather of its first days is thrown away.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from scipy import ndimage, sparse

Floats = npt.NDArray[np.floating[Any]]
Bools = npt.NDArray[np.bool_]

ROWS, COLUMNS = 48, 96
STEP_MINUTES = 40.0
MAPS_A_DAY = 2
SPIN_UP_DAYS = 60
# Days that are computed at a time: more take more memory, and less often tell how far it is.
CHUNK_DAYS = 5
YEAR_DAYS = 365

GRAVITY = 9.80665  # m/s²
GAS = 287.05  # J/(kg K), of dry air
LAPSE = 0.0065  # K/m
REFERENCE_PRESSURE = 1e5  # Pa, by which jcm scales the pressure at the surface
EARTH_KM = 6371.0

# As in the public data of DeepCAM, in their order; `channels` says how each comes from eight levels.
CHANNELS = [
    "TMQ",  # water vapour of the whole column, kg/m²
    "U850",  # wind to the east at 850 hPa, m/s
    "V850",  # wind to the north at 850 hPa, m/s
    "UBOT",  # wind to the east on the lowest level, m/s
    "VBOT",  # wind to the north on the lowest level, m/s
    "QREFHT",  # specific humidity at the reference height, kg/kg
    "PS",  # pressure at the surface, Pa
    "PSL",  # pressure reduced to sea level, Pa
    "T200",  # temperature at 200 hPa, K
    "T500",  # temperature at 500 hPa, K
    "PRECT",  # rain and snow, m/s of water
    "TS",  # temperature of the surface, K
    "TREFHT",  # temperature at the reference height, K
    "Z1000",  # height of 1000 hPa, m
    "Z200",  # height of 200 hPa, m
    "ZBOT",  # height of the lowest level above the surface, m
]

# Rivers of vapour, by the rules of B. Guan and D. E. Waliser (2015), "Detection of atmospheric rivers: Evaluation and
# application of an algorithm for global studies", on the horizontal transport of vapour of the whole column (IVT):
# it is above this quantile of all maps of a simulation in this place, and above this least,
RIVER_QUANTILE = 0.85
RIVER_IVT_MIN = 100.0  # kg/(m s)
# on cells that touch and are together so long, and so many times longer than wide,
RIVER_LENGTH_MIN_KM = 2000.0
RIVER_ELONGATION_MIN = 2.0
# and goes to the pole at this rate in the mean of them.
RIVER_POLEWARD_MIN = 50.0  # kg/(m s)
# Not theirs: on a coarse grid the trade winds and rivers become one, so cells nearer to the equator are left out; and a
# quantile of half a year is smoothed over cells.
RIVER_LATITUDE_MIN = 20.0  # degrees
QUANTILE_SMOOTHED_CELLS = 1.5

# Cyclones, in the manner of TECA (Prabhat et al. 2012, "TECA: A Parallel Toolkit for Extreme Climate Analysis"), which
# looks for lows in the pressure at sea level: so much below the mean of a ring around, whose radii are these.
CYCLONE_DEPTH_MIN = 600.0  # Pa
CYCLONE_RING_KM = (900.0, 1400.0)
# A cell or two alone are none, and under high ground, which is left out, there is no pressure at sea level.
CYCLONE_CELLS_MIN = 3
CYCLONE_GROUND_MAX = 1500.0  # m

BACKGROUND, CYCLONE, RIVER = range(3)

# What decides what is made.
PROGRAMS = {"jcm": "jcm", "dinosaur": "dinosaur", "JAX": "jaxlib", "SciPy": "scipy"}


class Globe:
    """The grid: rows are latitudes in degrees, from south to north; columns go around evenly."""

    def __init__(self, latitudes: Floats) -> None:
        self.latitudes = latitudes
        longitudes = np.arange(COLUMNS) * (360.0 / COLUMNS)
        at, to = np.meshgrid(np.radians(latitudes), np.radians(longitudes), indexing="ij")
        points = np.stack([np.cos(at) * np.cos(to), np.cos(at) * np.sin(to), np.sin(at)], -1)
        # Unit vectors to all cells, row by row.
        self.points = points.reshape(-1, 3)
        edges = np.concatenate([[-90.0], (latitudes[1:] + latitudes[:-1]) / 2, [90.0]])
        bands = np.diff(np.sin(np.radians(edges)))
        self.areas_km2 = np.repeat(bands[:, None] * (2 * np.pi / COLUMNS) * EARTH_KM**2, COLUMNS, 1)
        cosine = np.cos(np.array(CYCLONE_RING_KM) / EARTH_KM)
        near = self.points @ self.points.T
        ring = (near <= cosine[0]) & (near >= cosine[1])
        # Of values of all cells: their sum over the ring around each.
        self.ring = sparse.csr_array(ring * self.areas_km2.reshape(1, -1))

    def length_km(self, cells: Bools) -> float:
        """The distance of the two cells that are farthest apart."""
        points = self.points[cells.reshape(-1)]
        return float(np.arccos(np.clip((points @ points.T).min(), -1.0, 1.0)) * EARTH_KM)


def objects(cells: Bools) -> tuple[npt.NDArray[np.int32], int]:
    """Numbers cells that touch, also by a corner or around the globe, alike, from 1; 0 where there is none."""
    numbers, count = ndimage.label(cells, np.ones((3, 3)))
    same = np.arange(count + 1)

    def first(number: int) -> int:
        while same[number] != number:
            number = same[number]
        return number

    for row, west in enumerate(numbers[:, -1]):
        for east in numbers[max(row - 1, 0) : row + 2, 0]:
            if west and east:
                one, other = sorted((first(west), first(east)))
                same[other] = one
    firsts = np.array([first(number) for number in range(count + 1)])
    kept, numbers_kept = np.unique(firsts, return_inverse=True)
    return numbers_kept.astype(np.int32)[numbers], len(kept) - 1


def thresholds(ivt: Floats) -> Floats:
    """How much transport is much in each place, [48, 96], of all maps of a simulation, [maps, 48, 96]."""
    quantile = np.quantile(ivt, RIVER_QUANTILE, axis=0)
    smoothed = ndimage.gaussian_filter(quantile, QUANTILE_SMOOTHED_CELLS, mode=("nearest", "wrap"))
    least: Floats = np.maximum(smoothed, RIVER_IVT_MIN)
    return least


def rivers(globe: Globe, transport: Floats, least: Floats) -> Bools:
    """Where there are atmospheric rivers, of the transport of vapour to the east and north, [2, 48, 96] in kg/(m s)."""
    east, north = transport
    far = np.abs(globe.latitudes)[:, None] >= RIVER_LATITUDE_MIN
    numbers, count = objects((np.hypot(east, north) > least) & far)
    poleward = north * np.sign(globe.latitudes)[:, None]
    found = np.zeros((ROWS, COLUMNS), bool)
    for number in range(1, count + 1):
        cells = numbers == number
        area = globe.areas_km2[cells]
        length = globe.length_km(cells)
        if (
            length > RIVER_LENGTH_MIN_KM
            and length > RIVER_ELONGATION_MIN * area.sum() / length
            and np.average(poleward[cells], weights=area) > RIVER_POLEWARD_MIN
        ):
            found |= cells
    return found


def cyclones(globe: Globe, sea_level: Floats, ground: Floats) -> Bools:
    """Where there are cyclones, of the pressure at sea level in Pa and the height of the ground in m."""
    low = ground <= CYCLONE_GROUND_MAX
    areas = np.maximum(globe.ring @ low.reshape(-1), 1e-9)
    around = globe.ring @ (low * sea_level).reshape(-1) / areas
    numbers, count = objects((around.reshape(ROWS, COLUMNS) - sea_level >= CYCLONE_DEPTH_MIN) & low)
    sizes = np.bincount(numbers.reshape(-1), minlength=count + 1)
    sizes[0] = 0
    found: Bools = (sizes >= CYCLONE_CELLS_MIN)[numbers]
    return found


def mask(globe: Globe, transport: Floats, least: Floats, sea_level: Floats, ground: Floats) -> npt.NDArray[np.uint8]:
    """The class of each cell; where there is both it is a cyclone, as in DeepCAM."""
    found = np.where(rivers(globe, transport, least), RIVER, BACKGROUND)
    return np.where(cyclones(globe, sea_level, ground), CYCLONE, found).astype(np.uint8)


class Levels:
    """Where maps [maps, levels, 48, 96] on the model's levels, top first, have a pressure that is asked for."""

    def __init__(self, sigma: Floats, surface: Floats) -> None:
        """Of the layers' middles as parts of the pressure at the surface, and that pressure in Pa, [maps, 48, 96]."""
        self.logs = np.log(sigma[None, :, None, None] * surface[:, None])

    def at(self, values: Floats, pressure: float) -> Floats:
        """Linear in the logarithm of pressure; below the lowest level that one's own."""
        log = np.log(pressure)
        above = np.clip((self.logs < log).sum(1, keepdims=True) - 1, 0, self.logs.shape[1] - 2)

        def take(maps: Floats, level: npt.NDArray[np.int64]) -> Floats:
            return np.take_along_axis(maps, level, 1)[:, 0]

        upper, lower = take(self.logs, above), take(self.logs, above + 1)
        part = np.clip((log - upper) / (lower - upper), 0.0, 1.0)
        result: Floats = (1 - part) * take(values, above) + part * take(values, above + 1)
        return result


def channels(state: dict[str, Floats], sigma: Floats) -> tuple[Floats, Floats, Floats]:
    """Maps [maps, 16, 48, 96] in the order of `CHANNELS`; the transport of vapour to the east and north, [maps, 2, 48,
    96] in kg/(m s); the height of the ground, [maps, 48, 96] in m.

    `state` has the model's own quantities, [maps, 8, 48, 96] or [maps, 48, 96]; `sigma` the edges of layers, [9].

    - TMQ and the transport are sums over layers; UBOT, VBOT and QREFHT are those of the lowest layer, whose middle is at
      0.95 of the pressure at the surface, about 400 m above it: SPEEDY takes no other humidity for the surface's.
    - U850, V850, T200, T500 and Z200 lie between layers, linear in the logarithm of pressure. Where the ground is
      higher than 850 hPa the winds are those of the lowest layer.
    - PS, TS and TREFHT are the model's: TREFHT the temperature by which it exchanges heat with the surface.
    - PSL and Z1000 follow from the lowest layer with a lapse rate of 6.5 K/km, below the ground, too.
    - PRECT is that of the model's last step of 40 minutes, convective and large-scale.
    - ZBOT follows from the temperature of the lowest layer alone.
    """
    middles = (sigma[1:] + sigma[:-1]) / 2
    surface = REFERENCE_PRESSURE * state["pressure"]
    levels = Levels(middles, surface)
    vapour = state["humidity"] * np.diff(sigma)[None, :, None, None] * surface[:, None] / GRAVITY  # kg/m²
    transport = np.stack([(vapour * state[wind]).sum(1) for wind in ("u", "v")], 1)
    lowest = state["temperature"][:, -1]
    height = state["geopotential"] / GRAVITY
    bottom = GAS / GRAVITY * lowest * np.log(1 / middles[-1])
    ground = height[:, -1] - bottom
    # p (T₀ / T)^(g / R Γ) is the same at all heights where T falls by Γ.
    power = GAS * LAPSE / GRAVITY
    at_ground = lowest * (1 / middles[-1]) ** power
    at_sea = at_ground + LAPSE * ground
    sea_level = surface * (at_sea / at_ground) ** (1 / power)
    maps = [
        vapour.sum(1),
        levels.at(state["u"], 85000.0),
        levels.at(state["v"], 85000.0),
        state["u"][:, -1],
        state["v"][:, -1],
        state["humidity"][:, -1],
        surface,
        sea_level,
        levels.at(state["temperature"], 20000.0),
        levels.at(state["temperature"], 50000.0),
        state["precipitation"] / 1e6,  # of g/(m² s)
        state["skin"],
        state["near"],
        at_sea / LAPSE * (1 - (100000.0 / sea_level) ** power),
        levels.at(height, 20000.0),
        bottom,
    ]
    return np.stack(maps, 1), transport, ground


class Atmosphere:
    """jcm, which is compiled once."""

    def __init__(self) -> None:
        # One of as many as there are cores.
        os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ["JAX_PLATFORMS"] = "cpu"
        from importlib import resources

        from jcm.forcing import ForcingData
        from jcm.model import Model
        from jcm.physics.speedy.speedy_coords import get_speedy_coords
        from jcm.terrain import TerrainData

        folder = resources.files("jcm.data.bc.t30.clim")
        coords = get_speedy_coords()
        terrain = TerrainData.from_file(folder / "terrain.nc", coords=coords)
        self.forcing = ForcingData.from_file(folder / "forcing.nc", coords=coords, align_mode="wrap_year")
        self.model = Model(coords=coords, terrain=terrain, time_step=STEP_MINUTES)
        self.sigma = np.asarray(coords.vertical.boundaries, np.float64)
        self.globe = Globe(np.degrees(np.asarray(coords.horizontal.latitudes, np.float64)))

    def begin(self, seed: int, day: int) -> None:
        """At rest on a day of a year, the pressure disturbed as the seed says."""
        import jax.numpy as jnp
        from jcm.date import to_datetime

        date = np.datetime64("2001-01-01") + np.timedelta64(day, "D")
        self.time, self.step = to_datetime(str(date)), jnp.int32(0)
        self.state, self.carry = self.model.initial_state(random_seed=seed), self.model.initial_physics_carry()

    def go_on(self, days: int) -> dict[str, Floats]:
        """The quantities that `channels` takes, of the maps of so many days."""
        run, made = self.model.run_from_state_with_carry(
            self.state,
            self.forcing,
            save_interval=1 / MAPS_A_DAY,
            total_time=float(days),
            initial_physics_state=self.carry,
            initial_time=self.time,
            initial_step=self.step,
        )
        self.state, self.carry, self.time, self.step = run.dynamics, run.physics, run.time, run.step
        wind, surface = made.dynamics, made.physics["_surface_flux"]
        rain = made.physics["_convection"].precnv + made.physics["_condensation"].precls
        taken = {
            "u": wind.u_wind,
            "v": wind.v_wind,
            "temperature": wind.temperature,
            "humidity": wind.specific_humidity,
            "geopotential": wind.geopotential,
            "pressure": wind.normalized_surface_pressure,
            "precipitation": rain,
            "skin": surface.tskin,
            "near": surface.t0,
        }
        # Its last extents are longitude and latitude.
        return {name: np.asarray(values, np.float64).swapaxes(-1, -2) for name, values in taken.items()}


class Maker:
    """Makes simulations one after the other."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.atmosphere = Atmosphere()
        self.unit = -1
        # Of the unit: its transport of vapour, pressure at sea level, and ground, map by map.
        self.kept: list[tuple[Floats, Floats, Floats]] = []

    def maps(self, unit: int, maps: int, day: int, out: BinaryIO) -> None:
        """Maps of a unit that begins on a day of a year, in records."""
        digest = hashlib.blake2b(f"{self.seed} {unit}".encode(), digest_size=4).digest()
        # The first days are before, not in it.
        self.atmosphere.begin(int.from_bytes(digest, "little") >> 1, (day - SPIN_UP_DAYS) % YEAR_DAYS)
        for _ in range(SPIN_UP_DAYS // CHUNK_DAYS):
            self.atmosphere.go_on(CHUNK_DAYS)
        self.unit, self.kept = unit, []
        while maps > 0:
            made = channels(self.atmosphere.go_on(CHUNK_DAYS), self.atmosphere.sigma)
            for images, transport, ground in list(zip(*made, strict=True))[:maps]:
                if not np.isfinite(images).all():
                    sys.exit(f"the atmosphere of unit {unit} is not finite {maps} maps before its end")
                self.kept.append((transport, images[CHANNELS.index("PSL")], ground))
                out.write(images.astype("<f4").tobytes())
                maps -= 1
            out.flush()

    def masks(self, unit: int, out: BinaryIO) -> None:
        """The masks of the maps of the unit that was made last."""
        if unit != self.unit:
            sys.exit(f"masks are asked of unit {unit}, and the maps made last are of {self.unit}")
        least = thresholds(np.stack([np.hypot(*transport) for transport, _, _ in self.kept]))
        for transport, sea_level, ground in self.kept:
            out.write(mask(self.atmosphere.globe, transport, least, sea_level, ground).tobytes())
        out.flush()


def versions() -> str:
    from importlib.metadata import version

    return ", ".join(f"{name} {version(package)}" for name, package in PROGRAMS.items())


def main() -> None:
    # Records alone go to standard output; what libraries print goes to standard error.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        if sys.argv[1] == "versions":
            out.write(f"{versions()}\n".encode())
            return
        maker = Maker(int(sys.argv[1]))
        for line in sys.stdin:
            match line.split():
                case ["maps", unit, maps, day]:
                    maker.maps(int(unit), int(maps), int(day), out)
                case ["masks", unit]:
                    maker.masks(int(unit), out)
                case _:
                    sys.exit(f"it is not known what to do for {line!r}")


if __name__ == "__main__":
    # It ends without a word when nobody reads it, or asks any more.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
