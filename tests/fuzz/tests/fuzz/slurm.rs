//! What Slurm's commands print.

use tradewind_fuzz::target;
use tradewind_launch::slurm::printed::{number, rows, with_script};

const SCRIPT: &str = "/runs/r/slurm/job.sh";

#[test]
fn anything_may_be_printed() {
    let examples = [
        "4711\n",
        "4711;perlmutter\n",
        "12+0|climate|RUNNING|1:02|n[1-2]\n12+1|climate|PENDING|0:00|(Resources)\n\n",
        "12+0|climate|RUNNING|1:02|n[1-2]|/runs/r/slurm/job.sh\n13|a|PENDING|0:00|(Resources)|/more/runs/r/slurm/job.sh\n",
    ];
    target!(examples).each(|bytes, _| {
        let told = String::from_utf8_lossy(bytes);
        if let Some(job) = number(&told) {
            assert!(told.contains(&job.to_string()));
        }
        let lines = told.lines().count();
        let all = rows(&told);
        let own = with_script(&told, SCRIPT);
        assert!(all.len() <= lines && own.len() <= told.matches(SCRIPT).count());
        for row in all.iter().chain(&own) {
            assert!(!row.job.is_empty() && told.contains(&row.job));
            row.number();
        }
    });
}
