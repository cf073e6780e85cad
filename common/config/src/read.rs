//! Values of checked types, by key.

use super::{Value, Values};

impl Values<'_> {
    pub(super) fn int(&self, key: &str) -> i64 {
        let Value::Int(n) = self.get(key) else {
            unreachable!("{key} was read as an integer")
        };
        *n
    }

    pub(super) fn float(&self, key: &str) -> f64 {
        let Value::Float(x) = self.get(key) else {
            unreachable!("{key} was read as a number")
        };
        *x
    }

    pub(super) fn flag(&self, key: &str) -> bool {
        let Value::Bool(flag) = self.get(key) else {
            unreachable!("{key} was read as true or false")
        };
        *flag
    }

    pub(super) fn text(&self, key: &str) -> &str {
        let Value::Text(text) = self.get(key) else {
            unreachable!("{key} was read as text")
        };
        text
    }

    pub(super) fn ints(&self, key: &str) -> &[i64] {
        let Value::Ints(list) = self.get(key) else {
            unreachable!("{key} was read as a list")
        };
        list
    }

    /// Of a list whose numbers cannot be below 0.
    pub(super) fn counts(&self, key: &str) -> Vec<u64> {
        self.ints(key).iter().map(|n| n.unsigned_abs()).collect()
    }

    pub(super) fn floats(&self, key: &str) -> &[f64] {
        let Value::Floats(list) = self.get(key) else {
            unreachable!("{key} was read as a list of numbers")
        };
        list
    }

    pub(super) fn pairs(&self, key: &str) -> &[[i64; 2]] {
        let Value::Pairs(list) = self.get(key) else {
            unreachable!("{key} was read as a list of pairs")
        };
        list
    }

    pub(super) fn texts(&self, key: &str) -> &[String] {
        let Value::Texts(list) = self.get(key) else {
            unreachable!("{key} was read as a list of texts")
        };
        list
    }
}
