//! The committed generated code is what the .proto files say.

#[test]
fn generated_code_is_current() {
    let fresh = tempfile::tempdir().unwrap();
    tradewind_codegen::generate(fresh.path()).unwrap();
    let name = "tradewind.v1.rs";
    let gen_dir = tradewind_codegen::proto_root().join("src/gen");
    let committed = std::fs::read_to_string(gen_dir.join(name)).unwrap();
    let wanted = std::fs::read_to_string(fresh.path().join(name)).unwrap();
    assert!(
        committed == wanted,
        "{name} has drifted from the .proto files; run `make proto`"
    );
}
