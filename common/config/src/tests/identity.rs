//! By what a configuration is known on another machine, and to a later version.

use super::{GOOD, parse};

#[test]
fn a_configuration_is_known_by_what_is_not_at_its_default() {
    let of = |overrides: &[&str]| parse(GOOD, overrides).unwrap().identity().to_owned();
    let lines = "run.name = \"r\"\ndata.variable = \"t\"\ndata.validation = [10, 20]\n\
        data.held_out = [20, 30]\ntrain.samples = 100\noptimizer.learning_rate = 1.0\n";
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&of(&[])), sorted(lines));
    assert_eq!(of(&["exchange.connections=1"]), of(&[]), "its default");
    assert_eq!(of(&["data.files=[\"/elsewhere.nc\"]"]), of(&[]));
    assert_ne!(of(&["exchange.connections=2"]), of(&[]));
}
