//! Faults from a script, some a line: `SECONDS KIND VICTIM [DURATION] [reset]`, and others of the same
//! moment after a `+`.

use anyhow::{Context, bail};

use super::{Fault, FaultKind, Way};
use crate::victim::Victim;

/// How long a fault lasts if the line does not say it.
const LASTS: f64 = 3.0;

/// Reads a script. What follows a `#` is a comment.
pub fn parse(text: &str) -> anyhow::Result<Vec<Fault>> {
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words.is_empty() {
            let read = line_of(&words)
                .with_context(|| format!("line {}: `{}` is no fault", number + 1, line.trim()))?;
            faults.extend(read);
        }
    }
    faults.sort_by(|a, b| a.at.total_cmp(&b.at));
    Ok(faults)
}

fn line_of(words: &[&str]) -> anyhow::Result<Vec<Fault>> {
    let [at, rest @ ..] = words else {
        bail!("write SECONDS KIND VICTIM [DURATION]");
    };
    let at = seconds(at)?;
    let together = rest.split(|word| *word == "+");
    together.map(|words| fault(at, words)).collect()
}

fn fault(at: f64, words: &[&str]) -> anyhow::Result<Fault> {
    let [kind, rest @ ..] = words else {
        bail!("write SECONDS KIND VICTIM [DURATION]");
    };
    let Some(kind) = FaultKind::of(kind) else {
        bail!("`{kind}` is none of {}", FaultKind::words());
    };
    let (victim, rest) = victim(rest)?;
    if kind == FaultKind::Full && !victim.is_servers() {
        bail!("the disk of servers only can be full, and `{victim}` is none");
    }
    let (way, rest) = match rest {
        [rest @ .., "reset"] if kind == FaultKind::Cut => (Way::Reset, rest),
        rest => (Way::Silent, rest),
    };
    let lasts = match rest {
        _ if kind == FaultKind::Kill && rest.is_empty() => 0.0,
        [] => LASTS,
        [lasts] if kind != FaultKind::Kill => seconds(lasts)?,
        [word, ..] => bail!("`{word}` is too much"),
    };
    Ok(Fault {
        at,
        kind,
        victim,
        lasts,
        way,
    })
}

fn victim<'w>(words: &'w [&'w str]) -> anyhow::Result<(Victim, &'w [&'w str])> {
    let number = |word: &str| -> anyhow::Result<u32> {
        word.parse()
            .with_context(|| format!("`{word}` is no number"))
    };
    Ok(match words {
        ["coordinator", rest @ ..] => (Victim::Coordinator, rest),
        ["servers", rest @ ..] => (Victim::Servers, rest),
        ["all", rest @ ..] => (Victim::All, rest),
        ["server", server, rest @ ..] => (Victim::Server(number(server)?), rest),
        ["primary", shard, rest @ ..] => (Victim::Primary(number(shard)?), rest),
        ["node", node, rest @ ..] => (Victim::Node(number(node)?), rest),
        ["group", group, "rank", rank, rest @ ..] => {
            let (group, rank) = (number(group)?, number(rank)?);
            (Victim::Rank { group, rank }, rest)
        }
        ["group", group, rest @ ..] => (Victim::Group(number(group)?), rest),
        _ => bail!(
            "the victim is `server N`, `primary SHARD`, `coordinator`, `servers`, `group N`, \
             `group N rank N`, `node N` or `all`"
        ),
    })
}

fn seconds(word: &str) -> anyhow::Result<f64> {
    let number: f64 = word
        .trim_end_matches('s')
        .parse()
        .with_context(|| format!("`{word}` is no time in seconds"))?;
    if !number.is_finite() || number < 0.0 {
        bail!("`{word}` is no time in seconds");
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_says_when_what_and_whom() {
        let text = "# a comment\n20 stop group 0 rank 1 5s\n\n12.5 kill server 1 # now\n30 cut server 0 4s reset\n40 kill coordinator\n41 slow group 2\n50 full servers 4s + kill node 1\n51 kill all\n52 stop primary 2 2.2s\n";
        let faults = parse(text).unwrap();
        let written: Vec<String> = faults.iter().map(Fault::to_string).collect();
        assert_eq!(
            written,
            [
                "kill server 1",
                "stop rank 1 of group 0 5.0s",
                "cut server 0 4.0s reset",
                "kill coordinator",
                "slow group 2 3.0s",
                "full all servers 4.0s",
                "kill node 1",
                "kill everything",
                "stop primary of shard 2 2.2s",
            ]
        );
        assert_eq!(faults[0].at, 12.5, "in the order of time");
        assert_eq!((faults[5].at, faults[6].at), (50.0, 50.0), "at once");
    }

    #[test]
    fn a_bad_line_is_named() {
        for (line, want) in [
            ("5 burn server 1", "`burn`"),
            ("5 kill", "the victim is"),
            ("5", "write SECONDS"),
            ("5 kill server one", "`one` is no number"),
            ("x kill server 1", "`x` is no time"),
            ("5 kill server 1 3s", "`3s` is too much"),
            ("5 stop server 1 3s reset", "`3s` is too much"),
            ("5 kill server 1 +", "write SECONDS"),
            ("5 full group 1 3s", "`group 1` is none"),
        ] {
            let error = format!("{:#}", parse(&format!("\n{line}")).unwrap_err());
            assert!(error.contains(want) && error.contains("line 2"), "{error}");
        }
    }
}
