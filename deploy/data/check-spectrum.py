"""Compares the spectrum of made boxes of matter at z = 2, at the middle parameters, with that of CAMB.

    cargo test -p tradewind-make linear_theory -- --nocapture | python check-spectrum.py    # with camb installed
"""

import re
import sys

import camb

LINE = re.compile(r"k (\S+) h/Mpc: (\S+) \(Mpc/h\)³, (\S+) of linear theory")
OMEGA_M, OMEGA_B, SIGMA_8, N_S, H = 0.3089, 0.0486, 0.8159, 0.9667, 0.6774
REDSHIFT = 2.0


def spectrum(amplitude: float) -> camb.CAMBdata:
    parameters = camb.set_params(
        H0=100 * H, ombh2=OMEGA_B * H * H, omch2=(OMEGA_M - OMEGA_B) * H * H, mnu=0.0, omk=0.0, As=amplitude, ns=N_S
    )
    parameters.set_matter_power(redshifts=[REDSHIFT, 0.0], kmax=5.0)
    return camb.get_results(parameters)


amplitude = 2e-9
amplitude *= (SIGMA_8 / spectrum(amplitude).get_sigma8_0()) ** 2
linear = spectrum(amplitude).get_matter_power_interpolator(nonlinear=False, hubble_units=True, k_hunit=True)
lines = LINE.findall(sys.stdin.read())
if not lines:
    sys.exit("no spectrum came in: see the head of this file")
worst = 0.0
for k, power, _ in lines:
    ratio = float(power) / linear.P(REDSHIFT, float(k))
    worst = max(worst, abs(ratio - 1))
    print(f"k {k} h/Mpc: {ratio:.3f} of CAMB")
print(f"at most {100 * worst:.1f} % apart")
sys.exit(worst > 0.1)
