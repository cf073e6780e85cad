//! What Slurm's commands print, taken apart.

/// A job, or a component of one, as squeue tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// `4711`, or `4711+1` for a component.
    pub job: String,
    /// That of the job.
    pub name: String,
    /// `PENDING`, `RUNNING`, `COMPLETING`, …
    pub state: String,
    /// How long it has run, as Slurm writes it.
    pub elapsed: String,
    /// Why it is pending, or its nodes.
    pub reason: String,
}

impl Row {
    /// That of the whole job: 4711 of `4711+1`.
    pub fn number(&self) -> Option<u32> {
        self.job.split('+').next()?.parse().ok()
    }
}

/// The number of a job that sbatch has taken: of `12`, or `12;cluster`.
pub fn number(told: &str) -> Option<u32> {
    told.trim().split(';').next()?.parse().ok()
}

/// The jobs of squeue's lines, its fields apart by `|`; what is none is left out.
pub fn rows(told: &str) -> Vec<Row> {
    let row = |line: &str| {
        let mut fields = line.splitn(5, '|').map(|field| field.trim().to_owned());
        Some(Row {
            job: fields.next().filter(|job| !job.is_empty())?,
            name: fields.next()?,
            state: fields.next()?,
            elapsed: fields.next()?,
            reason: fields.next()?,
        })
    };
    told.lines().filter_map(row).collect()
}

/// Those of the lines that end with this script: squeue was asked for the script behind all other fields.
pub fn with_script(told: &str, script: &str) -> Vec<Row> {
    let own = told.lines().filter_map(|line| {
        let row = line.trim().strip_suffix(script)?.strip_suffix('|')?;
        rows(row).pop()
    });
    own.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_slurm_tells_is_read() {
        assert_eq!(number("4711\n"), Some(4711));
        assert_eq!(number("4711;perlmutter\n"), Some(4711));
        assert_eq!(number("sbatch: error"), None);
        let told = "12+0|climate|RUNNING|1:02|n[1-2]\n12+1|climate|PENDING|0:00|(Resources)\n\n";
        let row = |job: &str, state: &str, elapsed: &str, reason: &str| Row {
            job: job.into(),
            name: "climate".into(),
            state: state.into(),
            elapsed: elapsed.into(),
            reason: reason.into(),
        };
        let want = [
            row("12+0", "RUNNING", "1:02", "n[1-2]"),
            row("12+1", "PENDING", "0:00", "(Resources)"),
        ];
        assert_eq!(rows(told), want);
        let told = "\
12+0|climate|RUNNING|1:02|n[1-2]|/runs/r/slurm/job.sh
12+1|climate|PENDING|0:00|(Resources)|/runs/r/slurm/job.sh
13|climate|PENDING|0:00|(Resources)|/more/runs/r/slurm/job.sh
";
        assert_eq!(with_script(told, "/runs/r/slurm/job.sh"), want);
    }
}
