//! How many files and connections a process may have open.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Lets this process have as many open as the system lets it ask for: a server has two for each rank that
/// is connected, and the usual limit of 1,024 is one that programs are meant to raise. Answers how many that are;
/// `None` if there is no limit.
pub(crate) fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        Err(_) => limit.current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_as_may_be_asked_for() {
        let most = raise_limit();
        assert_eq!(most, getrlimit(Resource::Nofile).maximum);
        assert_eq!(most, getrlimit(Resource::Nofile).current);
    }
}
