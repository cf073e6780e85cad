//! By which the ranks of a group know what one of them has written where they meet.
//!
//! The store in which they meet asks nobody for anything. So each value in it carries a seal that only who knows
//! the run's token can make, and all names begin with a word that follows from the token.
//!
//! ```
//! use tradewind_client::group_key::GroupKey;
//! use tradewind_proto::auth::Token;
//!
//! let token = Token::new("of-the-run")?;
//! let key = GroupKey::of(&token, "climate/0/1");
//! let other = GroupKey::of(&token, "climate/0/2");
//! assert_ne!(key.seal(b"0", b"10.0.0.1:4000"), other.seal(b"0", b"10.0.0.1:4000"));
//! # Ok::<(), tradewind_proto::auth::BadToken>(())
//! ```

use tradewind_proto::auth::Token;

/// What the key is for; another use of a token has another one.
const CONTEXT: &str = "tradewind 2026-11 the store of a group";

/// Bytes of a key and of a seal.
pub const KEY_BYTES: usize = 32;

/// The key of one incarnation of a group, from the run's token. Without a token anybody can make it.
#[derive(Clone, PartialEq, Eq)]
pub struct GroupKey([u8; KEY_BYTES]);

impl GroupKey {
    /// The key of the incarnation of this name, which no other one has.
    pub fn of(token: &Token, incarnation: &str) -> Self {
        let run = blake3::derive_key(CONTEXT, token.secret());
        Self(*blake3::keyed_hash(&run, incarnation.as_bytes()).as_bytes())
    }

    /// With what the names of the group begin.
    pub fn prefix(&self) -> String {
        let hash = blake3::keyed_hash(&self.0, b"prefix");
        hash.to_hex()[..32].to_owned()
    }

    /// The seal of a value under its whole name: no other value, and no other name, has it.
    pub fn seal(&self, name: &[u8], value: &[u8]) -> [u8; KEY_BYTES] {
        seal(&self.0, name, value)
    }

    /// The key itself.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }
}

/// What is printed in logs tells nothing.
impl std::fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GroupKey")
    }
}

/// As [`GroupKey::seal`].
pub fn seal(key: &[u8; KEY_BYTES], name: &[u8], value: &[u8]) -> [u8; KEY_BYTES] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    // With its length the name cannot take from the value or give to it.
    hasher.update(&(name.len() as u64).to_le_bytes());
    hasher.update(name).update(value);
    *hasher.finalize().as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_of_one_run_one_incarnation_one_name_and_one_value() {
        let token = |secret: &str| Token::new(secret).unwrap();
        let key = |secret: &str, of: &str| GroupKey::of(&token(secret), of);
        let good = key("a", "r/0/1").seal(b"ab", b"c");
        assert_eq!(key("a", "r/0/1").seal(b"ab", b"c"), good);
        let others = [
            key("b", "r/0/1").seal(b"ab", b"c"),
            key("", "r/0/1").seal(b"ab", b"c"),
            key("a", "r/0/2").seal(b"ab", b"c"),
            key("a", "r/0/1").seal(b"a", b"bc"),
            key("a", "r/0/1").seal(b"ab", b"d"),
        ];
        assert!(others.iter().all(|other| *other != good));
        let prefixes = [key("a", "r/0/1"), key("b", "r/0/1"), key("a", "r/0/2")];
        let prefixes = prefixes.map(|key| key.prefix());
        assert_ne!(prefixes[0], prefixes[1]);
        assert_ne!(prefixes[0], prefixes[2]);
        assert_eq!(format!("{:?}", key("a", "r")), "GroupKey");
    }
}
