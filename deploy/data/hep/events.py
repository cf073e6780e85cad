"""Makes proton-proton collisions with Pythia 8, as images of a detector, for `tradewind data make hep`.

    python events.py 1 < requests > records     # the seed of all random numbers
    python events.py versions                   # what decides what is made, in one line

It needs pythia8mc, which is under the GPL, and NumPy. A request is a line "KIND UNIT EVENTS": events of a kind, "signal"
or "background", in a unit of random numbers of its own, so that a unit is the same whoever makes it and when. For
each event a record of 24,624 bytes is written, little-endian:

    jets   f32 [12]          features of jets, in the order of `features`
    image  f16 [3, 64, 64]   energy in GeV, electromagnetic part of it from 0 to 1, number of tracks;
                             rows are pseudorapidity from -2.5 to 2.5, columns azimuth from -π to π

The physics is that of W. Bhimji et al. (2018), arXiv:1711.03573: pairs of gluinos that decay to many quarks with
R-parity violated, against jets of ordinary quarks and gluons.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
import tempfile
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pythia8mc

Floats = npt.NDArray[np.float64]

BINS = 64
ETA_MAX = 2.5

# Both kinds: sum of jets' transverse momenta (HT) and number of jets, in GeV.
HT_MIN = 1500.0
JETS_MIN = 5
JET_PT_MIN = 50.0
FAT_JET_PT_MIN = 200.0

# A background event is given up early, when its shower has come down to so many GeV, unless its partons above
# PARTON_PT_MIN have so much HT and are so many. None of 739 selected events had less; three quarters of all events do,
# and making the rest of them takes most of the time.
GIVEN_UP_AT = 20.0
PARTON_PT_MIN = 25.0
PARTON_HT_MIN = 1450.0
PARTONS_MIN = 4

# The solenoid in tesla, and the radius in metres at which particles enter the calorimeters.
FIELD = 2.0
RADIUS = 1.15

# Least energy in GeV that a cell shows of each calorimeter.
ELECTROMAGNETIC_MIN = 0.5
HADRONIC_MIN = 1.0

# Random:seed of Pythia is at most 900,000,000.
PYTHIA_SEEDS = 900_000_000

COMMON = [
    "Print:quiet = on",
    "Beams:eCM = 13000.",
    "Random:setSeed = on",
    # What is computed at the start is the same for every unit; each then has a seed of its own.
    "Random:seed = 1",
]
PROCESSES = {
    "signal": ["SUSY:gg2gluinogluino = on", "SUSY:qqbar2gluinogluino = on"],
    "background": ["HardQCD:all = on", "PhaseSpace:pTHatMin = 500."],
}

GLUINO, NEUTRALINO = 1000021, 1000022
GLUINO_MASS, NEUTRALINO_MASS = 1400.0, 850.0
# So heavy that no other particle of supersymmetry takes part.
OTHERS_MASS = 5000.0
SQUARKS_AND_SLEPTONS = [side + flavour for side in (1000000, 2000000) for flavour in (1, 2, 3, 4, 5, 6, 11, 13, 15)]
OTHERS = [*SQUARKS_AND_SLEPTONS, 1000012, 1000014, 1000016, 1000023, 1000024, 1000025, 1000035, 1000037]


def spectrum() -> str:
    """The masses and decays in the form of SLHA: a gluino becomes a neutralino and two quarks, that three quarks."""

    def matrix(name: str, size: int) -> str:
        rows = [f"  {row} {column} {float(row == column)}" for row in range(1, size + 1) for column in range(1, size + 1)]
        return "\n".join([f"BLOCK {name}", *rows])

    def decay(particle: int, width: float, channels: list[list[int]]) -> str:
        part = 1 / len(channels)
        lines = [f"  {part:.8f} {len(products)} {' '.join(map(str, products))}" for products in channels]
        return "\n".join([f"DECAY {particle} {width}", *lines])

    masses = {GLUINO: GLUINO_MASS, NEUTRALINO: NEUTRALINO_MASS, **dict.fromkeys(OTHERS, OTHERS_MASS)}
    blocks = [
        "BLOCK MODSEL\n  1 0",
        "BLOCK MASS\n  25 125.0\n" + "\n".join(f"  {particle} {mass}" for particle, mass in masses.items()),
        matrix("NMIX", 4),
        *(matrix(name, 2) for name in ("UMIX", "VMIX", "STOPMIX", "SBOTMIX", "STAUMIX")),
        "BLOCK ALPHA\n  -0.1",
        decay(GLUINO, 1.0, [[NEUTRALINO, quark, -quark] for quark in (1, 2, 3, 4)]),
        # The coupling λ''₁₁₂, and the same for the antiparticles.
        decay(NEUTRALINO, 0.1, [[2, 1, 3], [-2, -1, -3]]),
        *(f"DECAY {particle} 0.0" for particle in OTHERS),
    ]
    return "\n".join(blocks) + "\n"


class GiveUp(pythia8mc.UserHooks):  # type: ignore[misc]
    """Ends events early that will not be selected."""

    def canVetoPT(self) -> bool:
        return True

    def scaleVetoPT(self) -> float:
        return GIVEN_UP_AT

    def doVetoPT(self, _position: int, event: Any) -> bool:
        partons = [particle.pT() for particle in event if particle.isFinal() and abs(particle.eta()) < ETA_MAX + 0.5]
        partons = [pt for pt in partons if pt > PARTON_PT_MIN]
        return len(partons) < PARTONS_MIN or sum(partons) < PARTON_HT_MIN


def started(kind: str) -> Any:
    """Pythia for one kind of events."""
    pythia = pythia8mc.Pythia("", False)
    if kind == "background":
        pythia.setUserHooksPtr(GIVE_UP)
    for setting in COMMON + PROCESSES[kind]:
        if not pythia.readString(setting):
            sys.exit(f"Pythia does not know {setting!r}")
    with tempfile.NamedTemporaryFile("w", suffix=".slha") as file:
        if kind == "signal":
            file.write(spectrum())
            file.flush()
            pythia.readString(f"SLHA:file = {file.name}")
        if not pythia.init():
            sys.exit(f"Pythia cannot be started for {kind}")
    return pythia


class Detector:
    """Turns the particles of an event into an image. Resolutions and efficiencies are those of Delphes' card of ATLAS
    (J. de Favereau et al. 2014, arXiv:1307.6346), without noise; each cell is smeared as a whole, as there."""

    def __init__(self, random: np.random.Generator) -> None:
        self.random = random

    def image(self, particles: Floats) -> tuple[Floats, Floats, Floats]:
        """Electromagnetic and hadronic energy in GeV and number of tracks, each [64, 64], of particles [n, 6]: px,
        py, pz and energy in GeV, charge, and which calorimeter they end in (0 none, 1 electromagnetic, 2 hadronic)."""
        px, py, pz, energy, charge, calorimeter = particles.T
        pt = np.hypot(px, py)
        eta = np.arcsinh(pz / np.maximum(pt, 1e-9))
        phi = np.arctan2(py, px)
        inside = np.abs(eta) < ETA_MAX

        chance = np.where(pt > 1.0, 0.95, np.where(pt > 0.1, 0.70, 0.0)) - np.where(np.abs(eta) > 1.5, 0.10, 0.0)
        is_track = inside & (charge != 0) & (self.random.random(len(pt)) < chance)
        tracks = cells(eta[is_track], phi[is_track], np.ones(is_track.sum()))

        # A charged particle flies on a circle, and does not reach the calorimeters if that is too small.
        bend = 0.3 * FIELD * RADIUS / 2 * charge / np.maximum(pt, 1e-9)
        arrives = inside & (np.abs(bend) < 1)
        at = wrapped(phi - np.arcsin(np.clip(bend, -1, 1)))
        electromagnetic, hadronic = (
            cells(eta[hit], at[hit], energy[hit]) for hit in (arrives & (calorimeter == which) for which in (1, 2))
        )

        far = np.abs(ETA_CENTRES)[:, None] > 1.7
        electromagnetic = self.smeared(electromagnetic, 0.101, 0.0017)
        hadronic = self.smeared(hadronic, np.where(far, 0.706, 0.5205), np.where(far, 0.05, 0.0302))
        electromagnetic[electromagnetic < ELECTROMAGNETIC_MIN] = 0
        hadronic[hadronic < HADRONIC_MIN] = 0
        return electromagnetic, hadronic, tracks

    def smeared(self, energy: Floats, per_root: float | Floats, part: float | Floats) -> Floats:
        """σ² = per_root² E + part² E². The logarithm is normal, with E as the mean, so that nothing is negative."""
        variance = np.square(per_root) * energy + np.square(part) * np.square(energy)
        log_variance = np.log1p(variance / np.maximum(np.square(energy), 1e-12))
        normal = self.random.standard_normal(energy.shape)
        smeared: Floats = energy * np.exp(np.sqrt(log_variance) * normal - log_variance / 2)
        return smeared


# Pythia does not keep it alive.
GIVE_UP = GiveUp()

ETA_CENTRES = (np.arange(BINS) + 0.5) * (2 * ETA_MAX / BINS) - ETA_MAX
PHI_CENTRES = (np.arange(BINS) + 0.5) * (2 * np.pi / BINS) - np.pi


def wrapped(phi: Floats) -> Floats:
    return np.mod(phi + np.pi, 2 * np.pi) - np.pi


def cells(eta: Floats, phi: Floats, weights: Floats) -> Floats:
    """Sums in cells, [64, 64]."""
    row = np.minimum(((eta + ETA_MAX) * (BINS / (2 * ETA_MAX))).astype(np.int64), BINS - 1)
    column = np.minimum(((phi + np.pi) * (BINS / (2 * np.pi))).astype(np.int64), BINS - 1)
    sums: Floats = np.bincount(row * BINS + column, weights, BINS * BINS).reshape(BINS, BINS).astype(np.float64)
    return sums


def particles_of(event: Any) -> Floats:
    """The final particles, as `Detector.image` takes them. Neutrinos and what interacts as little are left out."""
    kept = []
    for particle in event:
        if particle.isFinal() and particle.isVisible():
            kind = particle.idAbs()
            calorimeter = 1 if kind in (11, 22) else 0 if kind == 13 else 2
            kept.append(
                (particle.px(), particle.py(), particle.pz(), particle.e(), particle.charge(), calorimeter)
            )
    return np.array(kept, dtype=np.float64).reshape(-1, 6)


class Jets:
    """Finds jets in the cells of an image: anti-kT of radius 0.4, and fat ones of radius 1.0 (M. Cacciari, G. P. Salam,
    G. Soyez 2008)."""

    def __init__(self, pythia: Any) -> None:
        everything, true_masses = 1, 2
        self.cells = pythia8mc.Event()
        self.cells.init("cells", pythia.particleData)
        self.narrow = pythia8mc.SlowJet(-1, 0.4, JET_PT_MIN, ETA_MAX + 1, everything, true_masses)
        self.fat = pythia8mc.SlowJet(-1, 1.0, FAT_JET_PT_MIN, ETA_MAX + 1, everything, true_masses)

    def features(self, energy: Floats) -> npt.NDArray[np.float32] | None:
        """Twelve numbers of cells with so much energy, [64, 64] in GeV; none if the event is not selected. GeV, jets
        by falling transverse momentum, 0 where a jet is not there:

        HT; number of jets; number of fat jets; sum of the masses of the fat jets; transverse momentum of the first,
        second, fourth and fifth jet; mass of the first, second and third fat jet; distance of the first two fat jets
        in pseudorapidity."""
        photon, is_final = 22, 91
        self.cells.reset()
        rows, columns = np.nonzero(energy)
        momenta = energy[rows, columns]
        pt = momenta / np.cosh(ETA_CENTRES[rows])
        phi = PHI_CENTRES[columns]
        vectors = zip(pt * np.cos(phi), pt * np.sin(phi), momenta * np.tanh(ETA_CENTRES[rows]), momenta, strict=True)
        for px, py, pz, e in vectors:
            self.cells.append(photon, is_final, 0, 0, px, py, pz, e, 0.0)
        self.narrow.analyze(self.cells)
        pts = [self.narrow.pT(jet) for jet in range(self.narrow.sizeJet())]
        if len(pts) < JETS_MIN or sum(pts) < HT_MIN:
            return None
        self.fat.analyze(self.cells)
        fat = self.fat.sizeJet()
        masses = [self.fat.m(jet) for jet in range(fat)]
        apart = abs(self.fat.p(0).eta() - self.fat.p(1).eta()) if fat > 1 else 0.0
        three = (masses + [0.0] * 3)[:3]
        values = [sum(pts), len(pts), fat, sum(masses), pts[0], pts[1], pts[3], pts[4], *three, apart]
        return np.array(values, dtype="<f4")


class Maker:
    """Makes events of one kind."""

    def __init__(self, seed: int, kind: str) -> None:
        self.pythia = started(kind)
        self.jets = Jets(self.pythia)
        self.seed, self.kind = seed, kind
        digest = hashlib.blake2b(f"{seed} {kind}".encode(), digest_size=8).digest()
        self.first = int.from_bytes(digest, "little")

    def unit(self, number: int, events: int, out: BinaryIO) -> None:
        # Two units of a seed never have the same random numbers.
        self.pythia.rndm.init(1 + (self.first + number) % PYTHIA_SEEDS)
        kind = list(PROCESSES).index(self.kind)
        detector = Detector(np.random.Generator(np.random.PCG64([self.seed, kind, number])))
        made = 0
        while made < events:
            # Pythia gives up an event now and then, and says so on standard error.
            if not self.pythia.next():
                continue
            electromagnetic, hadronic, tracks = detector.image(particles_of(self.pythia.event))
            energy = electromagnetic + hadronic
            features = self.jets.features(energy)
            if features is None:
                continue
            part = np.divide(electromagnetic, energy, out=np.zeros_like(energy), where=energy > 0)
            out.write(features.tobytes())
            out.write(np.stack([energy, part, tracks]).astype("<f2").tobytes())
            out.flush()
            made += 1


def versions() -> str:
    return f"Pythia {pythia8mc.Pythia('', False).settings.parm('Pythia:versionNumber'):.3f}, NumPy {np.__version__}"


def main() -> None:
    # Records alone go to standard output; what libraries print goes to standard error.
    with os.fdopen(os.dup(1), "wb") as out:
        os.dup2(2, 1)
        if sys.argv[1] == "versions":
            out.write(f"{versions()}\n".encode())
            return
        seed = int(sys.argv[1])
        makers: dict[str, Maker] = {}
        for line in sys.stdin:
            kind, unit, events = line.split()
            if kind not in makers:
                makers[kind] = Maker(seed, kind)
            makers[kind].unit(int(unit), int(events), out)


if __name__ == "__main__":
    # It ends without a word when nobody reads it, or asks any more.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    main()
