//! Merges rows of `metrics.jsonl` until they are few enough.

use std::collections::BTreeMap;

use tradewind_common::record::StepRecord;

/// The rows as lines that have so many bytes at most: neighbours of each group are merged, the same number
/// of exchanges everywhere, twice as many as long as that is not enough. Exchanges that were skipped are
/// not merged with others.
pub(super) fn thinned(mut records: Vec<StepRecord>, bytes: usize) -> String {
    let mut most = 1;
    loop {
        let text = lines(&records);
        let fewest = records
            .iter()
            .map(kind)
            .collect::<std::collections::BTreeSet<_>>();
        if text.len() <= bytes || records.len() <= fewest.len() {
            return text;
        }
        most *= 2;
        records = merged(records, most);
    }
}

type Kind = (u32, bool, bool);

fn kind(record: &StepRecord) -> Kind {
    (record.group, record.skipped, record.overflowed)
}

/// Rows that tell of so many exchanges at most, each in the place of the last of them.
fn merged(records: Vec<StepRecord>, most: u64) -> Vec<StepRecord> {
    let mut rows: Vec<Option<StepRecord>> = Vec::with_capacity(records.len());
    let mut open: BTreeMap<Kind, usize> = BTreeMap::new();
    for record in records {
        let kind = kind(&record);
        let former = open
            .get(&kind)
            .and_then(|at| rows[*at].take_if(|former| former.exchanges + record.exchanges <= most));
        open.insert(kind, rows.len());
        rows.push(Some(match former {
            Some(former) => former.and(record),
            None => record,
        }));
    }
    rows.into_iter().flatten().collect()
}

fn lines(records: &[StepRecord]) -> String {
    let line = |record| serde_json::to_string(record).expect("a record is plain data") + "\n";
    records.iter().map(line).collect()
}
