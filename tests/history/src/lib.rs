//! Whether what a run answered can be true, judged by its answers alone.
//!
//! A run whose servers apply SGD at rate 1 to zeros, and whose group g pushes −1 at element g of every
//! block, holds vector clocks: element g of a block's values is the number of contributions of group
//! g that are in it. So every answer says which contributions it contains, and a history of what was
//! asked and answered can be checked without asking a server what it counts.
//!
//! [`History`] is a file of JSON, one [`Record`] a line, so that anything can write one;
//! [`check`] judges it. Nothing here depends on Tradewind.
//!
//! ```
//! use tradewind_history::{History, check};
//!
//! let lines = r#"
//!     {"record": "run", "groups": 1, "shards": [0], "policy": "async", "replication": 1}
//!     {"record": "operation", "number": 1, "start_us": 0, "group": 0, "incarnation": 1, "clock": 0,
//!      "block": 0, "action": "contribute",
//!      "answer": {"end_us": 9, "verdict": "applied", "lineage": 0, "version": 1, "counts": [1]}}
//!     {"record": "operation", "number": 2, "start_us": 10, "group": 0, "incarnation": 1, "clock": 0,
//!      "block": 0, "action": "pull",
//!      "answer": {"end_us": 12, "verdict": "read", "lineage": 0, "version": 0, "counts": [0]}}
//! "#;
//! let lines = lines.replace("\n     \"", " \"");
//! let history = History::read(lines.as_bytes()).unwrap();
//! let violation = check(&history).unwrap_err();
//! assert_eq!(violation.rule.name(), "stale");
//! assert_eq!(violation.operations, [1, 2]);
//! ```

mod check;
mod event;
mod file;
mod record;

pub use check::{Report, Rule, Violation, check};
pub use event::Vague;
pub use file::{History, Unreadable};
pub use record::{Action, Answer, Life, Loss, Operation, Policy, Record, Run, Verdict, Version};
