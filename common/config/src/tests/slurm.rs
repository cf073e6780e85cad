use super::*;

#[test]
fn what_becomes_jobs_has_a_shape() {
    let groups = "cluster.groups=[4, 4, 2]";
    let config = parse(GOOD, &[groups]).unwrap();
    let together = config.groups_together();
    assert_eq!((together, config.slurm.ranks_per_node), (3, None));
    let set = [
        groups,
        "slurm.min_groups=1",
        "slurm.ranks_per_node=2",
        "slurm.time_limit=02:30:00",
        "slurm.options=[\"--account=m1\", \"--qos=debug\"]",
        "slurm.interface=hsn0",
    ];
    let config = parse(GOOD, &set).unwrap();
    let (together, slurm) = (config.groups_together(), &config.slurm);
    assert_eq!((together, slurm.ranks_per_node), (1, Some(2)));
    assert_eq!(slurm.time_limit.as_deref(), Some("02:30:00"));
    assert_eq!(slurm.options, ["--account=m1", "--qos=debug"]);
    assert_eq!(slurm.interface.as_deref(), Some("hsn0"));
}

#[test]
fn what_slurm_would_misunderstand_is_refused() {
    let check = |set: &str, want: &str| {
        let error = parse(GOOD, &[set]).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    };
    check(
        "slurm.min_groups=2",
        "slurm.min_groups = 2 is more than cluster.groups has, 1",
    );
    check("slurm.time_limit=2h", "is no time such as");
    check("slurm.time_limit=1:2:3:4", "is no time such as");
    check(
        "slurm.time_limit=\"1\"",
        "slurm.time_limit = \"1\" leaves no time to train: the last snapshot is begun 60 s before",
    );
    // Slurm may tell of the limit a minute early: then there must be somebody who hears it.
    check("slurm.time_limit=2:19", "at least 2:20 min are needed");
    parse(GOOD, &["slurm.time_limit=2:20"]).unwrap();
    check("slurm.options=[\"-A m1\"]", "which is no long option");
    check(
        "slurm.group_options=[\"--qos=a\\n#SBATCH --nodes=9\"]",
        "has a line break in a line",
    );
    check(
        "slurm.group_options=[\"--nodes=4\"]",
        "has --nodes, which follows from other keys",
    );
    check("slurm.setup=[\"a\\nb\"]", "has a line break in a line");
    check(
        "slurm.interface=\"my lan\"",
        "cannot name a network interface",
    );
}
