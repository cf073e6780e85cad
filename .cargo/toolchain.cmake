# HDF5 as it is built for tests: without symbols, and not optimised, as `.cargo/config.toml` says. CMake's own flags of
# debug builds, and HDF5's before them, take nearly twice as long. Release builds have CMake's.
set(CMAKE_C_FLAGS_DEBUG "-g0 -O0" CACHE STRING "" FORCE)
