//! Digests of a shard by its version: all who have one have the same.

use std::collections::BTreeMap;

use tradewind_proto::v1::ShardStatusReply;

/// Versions of a log that are remembered.
const VERSIONS_MAX: usize = 512;

/// Logs of a shard that are remembered: its present one, and the one before, of which a late word may come.
const LOGS_MAX: usize = 2;

/// Which shard, and since when its primary is: what the log is called that copies follow.
type Log = (u32, u64);

/// What was seen at a sum of versions. Within a log it stands for one version of every block, for
/// copies apply its records in order.
#[derive(Debug, Default)]
pub(super) struct Digests {
    logs: BTreeMap<Log, BTreeMap<u64, (Vec<u8>, u32)>>,
    compared: u64,
}

impl Digests {
    /// Pairs that were compared.
    pub(super) fn compared(&self) -> u64 {
        self.compared
    }

    /// Forgets the oldest logs of a shard.
    fn forget(&mut self, shard: u32) {
        let logs = self.logs.range((shard, 0)..=(shard, u64::MAX));
        let old: Vec<Log> = logs.rev().skip(LOGS_MAX).map(|(log, _)| *log).collect();
        for log in old {
            self.logs.remove(&log);
        }
    }

    /// Compares what a primary or a full copy has with what others had at the same version.
    pub(super) fn take(&mut self, log: Log, reply: &ShardStatusReply) -> Result<(), String> {
        let versions = self.logs.entry(log).or_default();
        let (sum, server) = (reply.version_sum, reply.server);
        match versions.get(&sum) {
            None => {
                versions.insert(sum, (reply.digest.to_vec(), server));
                while versions.len() > VERSIONS_MAX {
                    versions.pop_first();
                }
                self.forget(log.0);
                Ok(())
            }
            Some((digest, first)) if digest[..] == reply.digest[..] => {
                self.compared += u64::from(*first != server);
                Ok(())
            }
            Some((_, first)) => Err(format!(
                "servers {first} and {server} differ in shard {} at equal versions (sum {sum})",
                log.0
            )),
        }
    }
}
