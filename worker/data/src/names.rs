//! Names: the nearest of a list, the natural order, and lists in messages.

use std::cmp::Ordering;

/// Most names in a message.
const NAMES_MAX: usize = 12;

/// The name that `name` was probably meant to be, if no more than a third of it differs.
pub fn nearest<'a>(name: &str, names: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let far = |other: &str| strsim::osa_distance(&name.to_lowercase(), &other.to_lowercase());
    let near = names.into_iter().map(|other| (far(other), other));
    let near = near.filter(|(far, other)| *far <= name.len().max(other.len()).div_ceil(3));
    near.min().map(|(_, other)| other)
}

/// `; perhaps "NAME"`, or nothing.
pub(crate) fn perhaps(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; perhaps {name:?}"))
}

/// Names with commas between; the first ones of many.
pub(crate) fn listed<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let mut names: Vec<_> = names.into_iter().collect();
    let more = names.len().saturating_sub(NAMES_MAX);
    names.truncate(NAMES_MAX);
    let names = names.join(", ");
    match more {
        0 => names,
        _ => format!("{names} and {more} more"),
    }
}

/// The order in which people count: `map-9` before `map-10`.
pub(crate) fn natural(a: &str, b: &str) -> Ordering {
    let (mut left, mut right) = (a.as_bytes(), b.as_bytes());
    loop {
        let (digits_left, digits_right) = (digits(left), digits(right));
        if digits_left > 0 && digits_right > 0 {
            let (number_left, rest_left) = left.split_at(digits_left);
            let (number_right, rest_right) = right.split_at(digits_right);
            let (number_left, number_right) = (significant(number_left), significant(number_right));
            let order = number_left.len().cmp(&number_right.len());
            let order = order.then_with(|| number_left.cmp(number_right));
            if order.is_ne() {
                return order;
            }
            (left, right) = (rest_left, rest_right);
            continue;
        }
        let (Some((first_left, rest_left)), Some((first_right, rest_right))) =
            (left.split_first(), right.split_first())
        else {
            // Equal but for zeros in front of numbers.
            return left.len().cmp(&right.len()).then_with(|| a.cmp(b));
        };
        if first_left != first_right {
            return first_left.cmp(first_right);
        }
        (left, right) = (rest_left, rest_right);
    }
}

/// How many digits it begins with.
fn digits(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_digit()).count()
}

/// Without zeros in front.
fn significant(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|digit| **digit == b'0').count();
    &number[zeros..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_as_people_count() {
        let want = [
            "",
            "1",
            "01",
            "2",
            "10",
            "a",
            "a/2.h5",
            "a/10.h5",
            "a-1",
            "a1",
            "a1b2",
            "a1b10",
            "a02",
            "b",
            "b20200101",
            "b20200102",
            "b99999999999999999999999",
            "b100000000000000000000000",
        ];
        let mut sorted = want;
        sorted.sort_by(|a, b| natural(b, a));
        sorted.sort_by(|a, b| natural(a, b));
        let by_bytes = |name: &str| want.iter().position(|other| *other == name).unwrap();
        for pair in sorted.windows(2) {
            assert!(natural(pair[0], pair[1]).is_lt(), "{pair:?}");
        }
        assert!(by_bytes("a/2.h5") < by_bytes("a/10.h5"));
        let position = |name: &str| sorted.iter().position(|other| *other == name).unwrap();
        assert!(position("2") < position("10") && position("a1b2") < position("a1b10"));
        assert!(position("b99999999999999999999999") < position("b100000000000000000000000"));
    }

    #[test]
    fn the_nearest_is_named_if_it_is_near() {
        let names = ["climate/data", "climate/labels_0", "deepcam"];
        assert_eq!(nearest("climate/date", names), Some("climate/data"));
        assert_eq!(nearest("DeepCam", names), Some("deepcam"));
        assert_eq!(nearest("wind", names), None);
        assert_eq!(perhaps(Some("x")), "; perhaps \"x\"");
        assert_eq!(perhaps(None), "");
    }

    #[test]
    fn long_lists_are_shortened() {
        assert_eq!(listed(["a", "b"]), "a, b");
        let many: Vec<_> = (0..20).map(|n| n.to_string()).collect();
        let text = listed(many.iter().map(String::as_str));
        assert!(text.ends_with("10, 11 and 8 more"), "{text}");
    }
}
