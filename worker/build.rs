//! Builds the bridge to libtorch's c10d and tells the linker where libtorch lives at run time.
//!
//! libtorch is looked for where torch-sys looks, in the same order, so that both are built
//! against one copy: the Python interpreter's torch if `LIBTORCH_USE_PYTORCH` is set, then the
//! folder `LIBTORCH` (`LIBTORCH_INCLUDE` and `LIBTORCH_LIB` may point elsewhere), then `/usr`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const SAY: &str = "\
import torch
from torch.utils import cpp_extension
print('abi', int(torch._C._GLIBCXX_USE_CXX11_ABI))
for folder in cpp_extension.include_paths(): print('include', folder)
for folder in cpp_extension.library_paths(): print('lib', folder)
";

/// Of the bridge; its NCCL half, csrc/nccl.cpp, is built by `make nccl`.
const PARTS: [&str; 11] = [
    "c10d",
    "connections",
    "device",
    "direct",
    "group",
    "half",
    "precision",
    "reducer",
    "settings",
    "store",
    "watch",
];

/// A libtorch to build against.
struct Libtorch {
    includes: Vec<PathBuf>,
    lib: PathBuf,
    /// `_GLIBCXX_USE_CXX11_ABI`: 1 for the new string and list types.
    cxx11_abi: String,
}

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=csrc");
    // Miri interprets what is Rust, and links nothing.
    if env::var_os("CARGO_CFG_MIRI").is_some() {
        return;
    }
    let libtorch = if watched("LIBTORCH_USE_PYTORCH").is_some() {
        of_python().unwrap_or_else(|why| missing(&why))
    } else {
        of_folders()
    };
    let header = Path::new("torch/csrc/distributed/c10d/TCPStore.hpp");
    if !libtorch
        .includes
        .iter()
        .any(|folder| folder.join(header).is_file())
    {
        missing(&format!(
            "no {} in {:?}",
            header.display(),
            libtorch.includes
        ));
    }
    let cpu = libtorch.lib.join("libtorch_cpu.so");
    let real = cpu
        .canonicalize()
        .unwrap_or_else(|error| missing(&format!("{}: {error}", cpu.display())));
    compile(&libtorch);
    link(&libtorch.lib, &real);
}

fn watched(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    env::var(name).ok()
}

fn of_python() -> Result<Libtorch, String> {
    let python = if watched("VIRTUAL_ENV").is_some() {
        "python"
    } else {
        "python3"
    };
    let output = Command::new(python)
        .args(["-c", SAY])
        .output()
        .map_err(|error| format!("{python} does not start: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "{python} has no torch: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ));
    }
    let said = String::from_utf8_lossy(&output.stdout);
    let all = |key: &str| -> Vec<PathBuf> {
        let values = said.lines().filter_map(|line| line.split_once(' '));
        values
            .filter(|(k, _)| *k == key)
            .map(|(_, value)| value.into())
            .collect()
    };
    let abi = all("abi").pop().ok_or("torch does not tell its ABI")?;
    Ok(Libtorch {
        includes: all("include"),
        lib: all("lib")
            .into_iter()
            .next()
            .ok_or("torch does not tell its library folder")?,
        cxx11_abi: abi.display().to_string(),
    })
}

fn of_folders() -> Libtorch {
    let root = watched("LIBTORCH").unwrap_or_else(|| "/usr".into());
    let include = PathBuf::from(watched("LIBTORCH_INCLUDE").unwrap_or_else(|| root.clone()));
    let lib = PathBuf::from(watched("LIBTORCH_LIB").unwrap_or(root));
    Libtorch {
        includes: vec![
            include.join("include"),
            include.join("include/torch/csrc/api/include"),
        ],
        lib: lib.join("lib"),
        cxx11_abi: watched("LIBTORCH_CXX11_ABI").unwrap_or_else(|| "1".into()),
    }
}

/// Compiles all parts as one file: a compiler reads the headers of libtorch for longer than it compiles any
/// part.
fn compile(libtorch: &Libtorch) {
    let out = env::var_os("OUT_DIR").expect("cargo says where to build");
    let whole = Path::new(&out).join("tradewind_c10d.cpp");
    let includes = PARTS.map(|part| format!("#include \"{part}.cpp\"\n"));
    std::fs::write(&whole, includes.concat()).expect("the folder of the build can be written");
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .pic(true)
        .file(whole)
        .include("csrc");
    for folder in &libtorch.includes {
        // As system headers: their warnings are not ours.
        build.flag("-isystem").flag(folder);
    }
    build
        .define("_GLIBCXX_USE_CXX11_ABI", libtorch.cxx11_abi.as_str())
        .define("USE_C10D_GLOO", None)
        // The line tables of every torch header would make the archive ten times as large.
        .debug(false)
        .compile("tradewind_c10d");
}

/// Links the libtorch in `lib` and puts the folder where it really stands into the rpath of this
/// package's binaries, tests and examples; packages that link against this one find it as
/// metadata. `LIBTORCH` may be a folder of links, in which libtorch's parts do not find each other.
fn link(lib: &Path, real: &Path) {
    let folder = real.parent().expect("a file stands in a folder").display();
    println!("cargo::rerun-if-changed={}", real.display());
    println!("cargo::rustc-link-search=native={}", lib.display());
    println!("cargo::rustc-link-lib=torch_cpu");
    println!("cargo::rustc-link-lib=c10");
    println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    println!("cargo::metadata=rpath={folder}");
}

fn missing(why: &str) -> ! {
    eprintln!(
        "\nlibtorch 2.11 was not found: {why}\n\
         Run `make setup`, which fetches it into .deps/; or set LIBTORCH to a folder that holds \
         it as `include` and `lib`; or set LIBTORCH_USE_PYTORCH=1 to use the torch of python3.\n"
    );
    std::process::exit(1)
}
