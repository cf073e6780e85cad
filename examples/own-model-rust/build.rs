//! Lets this package's programs and tests find libtorch at run time, from any folder: the worker package, which
//! links it, says where it lives.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_TRADEWIND_C10D_RPATH");
    if let Ok(folder) = std::env::var("DEP_TRADEWIND_C10D_RPATH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
    }
}
