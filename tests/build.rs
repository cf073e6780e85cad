//! Lets the test binary find libtorch at run time, from any folder, and tells tests that folder: the
//! worker package, which links it, says where it lives.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=DEP_TRADEWIND_C10D_RPATH");
    if let Ok(folder) = std::env::var("DEP_TRADEWIND_C10D_RPATH") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{folder}");
        println!("cargo::rustc-env=LIBTORCH_FOLDER={folder}");
    }
}
