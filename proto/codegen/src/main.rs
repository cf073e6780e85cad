//! `make proto`: regenerates `proto/src/gen`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    tradewind_codegen::generate(&tradewind_codegen::proto_root().join("src/gen"))
}
