//! Which data sets of files become which fields.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::names::{listed, nearest, perhaps};
use crate::{DataError, Kind};

/// Layouts with a name of their own: those of the public references.
pub const NAMED: [(&str, &str); 3] = [
    (
        "deepcam",
        "image=climate/data:f32,mask=climate/labels_0:u8<3",
    ),
    ("cosmoflow", "volume=x,target=y:f32"),
    ("hep", "image=data[samples]:f32,label=label[samples]:u8<2"),
];

/// What a data set's first extent counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum First {
    /// Part of the one sample that the file has.
    Extent,
    /// Samples: the file has several.
    Samples,
    /// Rows of the one sample that the file has; their number varies.
    Rows {
        /// In the sample that has most.
        most: usize,
    },
    /// Rows of all samples of the file, one sample's behind the other's; their number varies.
    Ragged {
        /// In the sample that has most.
        most: usize,
        /// The data set that says where the rows of each sample begin, and at last where they end.
        offsets: String,
    },
}

impl First {
    /// Whether the file has several samples.
    pub fn counts_samples(&self) -> bool {
        matches!(self, Self::Samples | Self::Ragged { .. })
    }
}

/// How one field is found in files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The field's name.
    pub field: String,
    /// The data set's, with the groups that it is in: `climate/data`.
    pub dataset: String,
    /// What the first extent of the data set counts.
    pub first: First,
    /// What the numbers become; as they are stored if there is none.
    pub kind: Option<Kind>,
    /// Of class numbers: how many classes there are.
    pub classes: Option<u32>,
}

/// Which data sets of a file become which fields: a [name](NAMED), or fields with commas between.
///
/// ```text
/// image=climate/data:f32,mask=climate/labels_0:u8<3      one sample a file
/// image=data[samples]:f32,label=label[samples]:u8<2      the first extent counts samples
/// image=image:u8,boxes=boxes[rows<=64]:f32               rows whose number varies, at most 64
/// image=image[samples],boxes=boxes[rows<=64 of begins]   such rows of several samples: sample 3 has those from
///                                                        begins[3] to before begins[4]
/// ```
/// A field is `FIELD=DATASET`, then in brackets what the first extent counts, if it is no part of a sample's
/// tensor; then after a colon the kind (`u8`, `i16`, `i32`, `f16`, `bf16` or `f32`; as stored without one);
/// then after `<` the number of classes.
///
/// ```
/// use tradewind_data::Layout;
///
/// let layout: Layout = "hep".parse()?;
/// assert_eq!(layout.to_string(), "image=data[samples]:f32,label=label[samples]:u8<2");
/// # Ok::<(), tradewind_data::DataError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Layout {
    items: Vec<Item>,
}

/// Why a text is no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Neither a name nor fields.
    #[error(
        "there is no layout {name:?}{}; there are {}, or fields as in \"image=climate/data:f32,mask=climate/labels_0:u8<3\"",
        perhaps(nearest(name, named())),
        listed(named())
    )]
    Unknown {
        /// The text.
        name: String,
    },
    /// Something between commas that is no field.
    #[error(
        "{item:?} of the layout is no field: write FIELD=DATASET, as in \"image=climate/data:f32\""
    )]
    NoField {
        /// It.
        item: String,
    },
    /// A kind that does not exist.
    #[error(
        "{item:?} of the layout: there is no kind {kind:?}{}; there are {}",
        perhaps(nearest(kind, kinds())),
        listed(kinds())
    )]
    Kind {
        /// The field's text.
        item: String,
        /// The kind.
        kind: String,
    },
    /// Something in brackets that counts nothing.
    #[error(
        "{item:?} of the layout: the first extent counts [samples], at most so many [rows<=64], or those of several samples [rows<=64 of BEGINS], not [{first}]"
    )]
    First {
        /// The field's text.
        item: String,
        /// What is in the brackets.
        first: String,
    },
    /// No number of classes.
    #[error(
        "{item:?} of the layout: the number of classes is a whole number from 1, not {classes:?}"
    )]
    Classes {
        /// The field's text.
        item: String,
        /// What is there instead.
        classes: String,
    },
    /// Two fields of one name.
    #[error("two fields of the layout have the name {field:?}")]
    Twice {
        /// The name.
        field: String,
    },
    /// Some first extents count samples and some do not.
    #[error(
        "the first extent of {samples:?} counts samples, and that of {other:?} does not: in a file of several samples all count them"
    )]
    Mixed {
        /// The first field whose extent counts samples.
        samples: String,
        /// The first one whose does not.
        other: String,
    },
}

impl From<LayoutError> for DataError {
    fn from(error: LayoutError) -> Self {
        Self::Asked(error.to_string())
    }
}

fn named() -> impl Iterator<Item = &'static str> {
    NAMED.into_iter().map(|(name, _)| name)
}

fn kinds() -> impl Iterator<Item = &'static str> {
    Kind::ALL.into_iter().map(Kind::name)
}

impl Layout {
    /// A layout of these fields.
    ///
    /// # Errors
    /// Two fields of one name; first extents that count samples beside others.
    ///
    /// # Panics
    /// If there is no field.
    pub fn new(items: Vec<Item>) -> Result<Self, LayoutError> {
        assert!(!items.is_empty(), "a layout has fields");
        for (number, item) in items.iter().enumerate() {
            if items[..number]
                .iter()
                .any(|other| other.field == item.field)
            {
                let field = item.field.clone();
                return Err(LayoutError::Twice { field });
            }
        }
        let counts = |item: &&Item| item.first.counts_samples();
        let samples = items.iter().find(counts);
        let other = items.iter().find(|item| !counts(item));
        if let (Some(samples), Some(other)) = (samples, other) {
            return Err(LayoutError::Mixed {
                samples: samples.field.clone(),
                other: other.field.clone(),
            });
        }
        Ok(Self { items })
    }

    /// The layouts that have a [name](NAMED).
    pub fn named() -> impl Iterator<Item = Self> {
        let layouts = NAMED.into_iter().map(|(_, layout)| parse(layout));
        layouts.map(|layout| layout.expect("a test parses them"))
    }

    /// Its fields.
    pub fn items(&self) -> &[Item] {
        &self.items
    }

    /// Whether first extents count samples, so that a file has several.
    pub fn counts_samples(&self) -> bool {
        self.items.iter().any(|item| item.first.counts_samples())
    }
}

impl FromStr for Layout {
    type Err = DataError;

    fn from_str(text: &str) -> Result<Self, DataError> {
        Ok(parse(text)?)
    }
}

fn parse(text: &str) -> Result<Layout, LayoutError> {
    let text = text.trim();
    let known = NAMED.into_iter().find(|(name, _)| *name == text);
    let text = known.map_or(text, |(_, layout)| layout);
    if !text.contains('=') {
        return Err(LayoutError::Unknown { name: text.into() });
    }
    let items: Result<_, _> = text.split(',').map(|item| field(item.trim())).collect();
    Layout::new(items?)
}

/// `FIELD=DATASET[FIRST]:KIND<CLASSES`.
fn field(text: &str) -> Result<Item, LayoutError> {
    let item = || text.to_owned();
    let none = || LayoutError::NoField { item: item() };
    let (field, rest) = text.split_once('=').ok_or_else(none)?;
    // A first extent has a `<` of its own.
    let (dataset, first, rest) = match rest.split_once('[') {
        Some((dataset, rest)) => {
            let (inside, rest) = rest.split_once(']').ok_or_else(none)?;
            (Some(dataset), Some(inside.trim()), rest)
        }
        None => (None, None, rest),
    };
    let (rest, classes) = match rest.split_once('<') {
        Some((rest, classes)) => (rest, Some(classes.trim())),
        None => (rest, None),
    };
    let (rest, kind) = match rest.split_once(':') {
        Some((rest, kind)) => (rest, Some(kind.trim())),
        None => (rest, None),
    };
    let dataset = match dataset {
        Some(_) if !rest.trim().is_empty() => return Err(none()),
        Some(dataset) => dataset,
        None => rest,
    };
    let (field, dataset) = (field.trim(), dataset.trim().trim_matches('/'));
    let is_name = |name: &str| !name.is_empty() && !name.contains(['=', '[', ']', ':', '<']);
    if !is_name(field) || !is_name(dataset) {
        return Err(none());
    }
    let first = match first {
        None => First::Extent,
        Some("samples") => First::Samples,
        Some(first) => rows(first).ok_or_else(|| LayoutError::First {
            item: item(),
            first: first.into(),
        })?,
    };
    let kind = kind.map(|name| {
        let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        kind.ok_or_else(|| LayoutError::Kind {
            item: item(),
            kind: name.into(),
        })
    });
    let classes = classes.map(|classes| {
        let number = classes.parse().ok().filter(|number: &u32| *number > 0);
        number.ok_or_else(|| LayoutError::Classes {
            item: item(),
            classes: classes.into(),
        })
    });
    Ok(Item {
        field: field.into(),
        dataset: dataset.into(),
        first,
        kind: kind.transpose()?,
        classes: classes.transpose()?,
    })
}

/// `rows<=64` or `rows<=64 of begins`.
fn rows(text: &str) -> Option<First> {
    let rest = text.strip_prefix("rows")?.trim_start().strip_prefix("<=")?;
    let (most, offsets) = match rest.split_once(" of ") {
        Some((most, offsets)) => (most, Some(offsets.trim().trim_matches('/'))),
        None => (rest, None),
    };
    let most = most.trim().parse().ok().filter(|most| *most > 0)?;
    match offsets {
        None => Some(First::Rows { most }),
        Some("") => None,
        Some(offsets) => Some(First::Ragged {
            most,
            offsets: offsets.into(),
        }),
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, item) in self.items.iter().enumerate() {
            let comma = if number > 0 { "," } else { "" };
            write!(out, "{comma}{}={}", item.field, item.dataset)?;
            match &item.first {
                First::Extent => {}
                First::Samples => write!(out, "[samples]")?,
                First::Rows { most } => write!(out, "[rows<={most}]")?,
                First::Ragged { most, offsets } => write!(out, "[rows<={most} of {offsets}]")?,
            }
            if let Some(kind) = item.kind {
                write!(out, ":{}", kind.name())?;
            }
            if let Some(classes) = item.classes {
                write!(out, "<{classes}")?;
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for Layout {
    type Error = DataError;

    fn try_from(text: String) -> Result<Self, DataError> {
        text.parse()
    }
}

impl From<Layout> for String {
    fn from(layout: Layout) -> Self {
        layout.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_written_as_they_are_read() {
        for (name, text) in NAMED {
            let layout: Layout = name.parse().unwrap();
            assert_eq!(layout.to_string(), text);
            assert_eq!(layout, text.parse().unwrap());
        }
        let check = |text: &str, want: &str| {
            let layout: Layout = text.parse().unwrap();
            assert_eq!(layout.to_string(), want);
            let json = serde_json::to_string(&layout).unwrap();
            assert_eq!(serde_json::from_str::<Layout>(&json).unwrap(), layout);
        };
        check("a=b", "a=b");
        check(
            " a = /g/b : f16 , c = d [ samples ] "
                .split(',')
                .next()
                .unwrap(),
            "a=g/b:f16",
        );
        check("x=x[rows<=8]:bf16", "x=x[rows<=8]:bf16");
        check("x = x [ rows <= 8 ] : u8 < 5", "x=x[rows<=8]:u8<5");
        check("a=air temperature<9", "a=air temperature<9");
        check(
            "x=x[samples],b = b [ rows <= 8 of /g/begins ] :f16<5",
            "x=x[samples],b=b[rows<=8 of g/begins]:f16<5",
        );
    }

    #[test]
    fn fields_say_all_that_is_written() {
        let layout: Layout = "boxes=g/b[rows<=64]:i16<7".parse().unwrap();
        let want = Item {
            field: "boxes".into(),
            dataset: "g/b".into(),
            first: First::Rows { most: 64 },
            kind: Some(Kind::I16),
            classes: Some(7),
        };
        assert_eq!(layout.items(), [want]);
        assert!(!layout.counts_samples());
        assert!("hep".parse::<Layout>().unwrap().counts_samples());
    }

    #[test]
    fn what_is_wrong_is_named_with_the_way_out() {
        let check = |text: &str, want: &str| {
            let error = text.parse::<Layout>().unwrap_err().to_string();
            assert!(error.contains(want), "{text}: {error}");
        };
        check(
            "",
            "there is no layout \"\"; there are deepcam, cosmoflow, hep",
        );
        check(
            "depcam",
            "there is no layout \"depcam\"; perhaps \"deepcam\"",
        );
        check("weather", "there is no layout \"weather\"; there are");
        for text in [
            "=x",
            "a=",
            "a=b,",
            "a=b,c",
            "a=b[samples",
            "a=b[samples]c:f32",
            "a=b=c",
            "a=b]",
            "a=b:f32[samples]",
        ] {
            check(text, "is no field: write FIELD=DATASET");
        }
        check("a=x:f23", "there is no kind \"f23\"; perhaps \"f32\"");
        check(
            "a=x:complex",
            "there is no kind \"complex\"; there are u8, i16, i32, f16, bf16, f32",
        );
        check("a=x:", "there is no kind \"\"");
        for text in [
            "a=x[]",
            "a=x[n]",
            "a=x[rows]",
            "a=x[rows<=0]",
            "a=x[rows<=-1]",
            "a=x[rows<9]",
            "a=x[rows<=9 of ]",
            "a=x[rows<=of b]",
        ] {
            check(
                text,
                "counts [samples], at most so many [rows<=64], or those of several samples [rows<=64 of BEGINS], not [",
            );
        }
        for text in ["a=x<0", "a=x:u8<", "a=x:u8<-1", "a=x:u8<two", "a=x:u8<3<4"] {
            check(text, "the number of classes is a whole number from 1");
        }
        check("a=x,a=y", "two fields of the layout have the name \"a\"");
        check(
            "a=x[samples],b=y",
            "the first extent of \"a\" counts samples, and that of \"b\" does not",
        );
        check(
            "a=x,b=y[samples]",
            "the first extent of \"b\" counts samples, and that of \"a\" does not",
        );
        check(
            "a=x[rows<=2 of z],b=y[rows<=2]",
            "counts samples, and that of \"b\" does not",
        );
        check(
            "a=x[samples],b=y[rows<=2]",
            "counts samples, and that of \"b\" does not",
        );
    }
}
