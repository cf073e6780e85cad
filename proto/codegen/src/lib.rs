//! The one recipe for the generated code: pure Rust, no protoc.

use std::path::{Path, PathBuf};

/// The folder of the package that holds the .proto files.
pub fn proto_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("codegen lies in proto")
        .to_owned()
}

/// Writes the generated module of `tradewind/v1/*.proto` into `out`.
pub fn generate(out: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let files = ["types", "coordinator", "shard"].map(|f| format!("tradewind/v1/{f}.proto"));
    let descriptors = protox::compile(files, [proto_root()])?;
    std::fs::create_dir_all(out)?;
    tonic_prost_build::configure()
        .out_dir(out)
        .bytes(".")
        .codec_path("crate::codec::SlimCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
