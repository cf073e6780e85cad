//! A table of results, as `results.csv` and as `results.parquet`.

use std::path::Path;
use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as Physical};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DoubleType, Int64Type};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::Type;

use tradewind_process::whole::{self, Part};

/// A column with the values of all rows; `None` where a row has none.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    pub name: String,
    pub values: Values,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    Texts(Vec<Option<String>>),
    Ints(Vec<Option<i64>>),
    Floats(Vec<Option<f64>>),
    Flags(Vec<Option<bool>>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::Texts(values) => values.len(),
            Self::Ints(values) => values.len(),
            Self::Floats(values) => values.len(),
            Self::Flags(values) => values.len(),
        }
    }

    fn text(&self, row: usize) -> String {
        let text = match self {
            Self::Texts(values) => values[row].clone(),
            Self::Ints(values) => values[row].map(|n| n.to_string()),
            // The shortest text that reads back as the same number.
            Self::Floats(values) => values[row].map(|x| x.to_string()),
            Self::Flags(values) => values[row].map(|flag| flag.to_string()),
        };
        text.unwrap_or_default()
    }
}

impl Column {
    pub fn rows(&self) -> usize {
        self.values.len()
    }

    /// A value as text; empty where there is none.
    pub fn text(&self, row: usize) -> String {
        self.values.text(row)
    }
}

/// Writes the table as CSV (RFC 4180, but with line feeds), readers seeing all of it or none.
pub fn write_csv(columns: &[Column], path: &Path) -> anyhow::Result<()> {
    let line = |fields: Vec<String>| fields.join(",") + "\n";
    let mut text = line(columns.iter().map(|c| quoted(&c.name)).collect());
    for row in 0..columns.first().map_or(0, Column::rows) {
        text += &line(columns.iter().map(|c| quoted(&c.text(row))).collect());
    }
    Ok(whole::write(path, text)?)
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Writes the table as one row group of optional columns.
pub fn write_parquet(columns: &[Column], path: &Path) -> anyhow::Result<()> {
    let fields = columns.iter().map(|column| {
        let (physical, logical) = match column.values {
            Values::Texts(_) => (Physical::BYTE_ARRAY, Some(LogicalType::String)),
            Values::Ints(_) => (Physical::INT64, None),
            Values::Floats(_) => (Physical::DOUBLE, None),
            Values::Flags(_) => (Physical::BOOLEAN, None),
        };
        let field = Type::primitive_type_builder(&column.name, physical)
            .with_repetition(Repetition::OPTIONAL)
            .with_logical_type(logical)
            .build()?;
        Ok(Arc::new(field))
    });
    let fields = fields.collect::<parquet::errors::Result<_>>()?;
    let schema = Type::group_type_builder("results")
        .with_fields(fields)
        .build()?;
    let properties = Arc::new(WriterProperties::builder().build());
    let part = Part::beside(path)?;
    let mut file = SerializedFileWriter::new(part.file(), Arc::new(schema), properties)?;
    let mut group = file.next_row_group()?;
    for column in columns {
        let mut to = group.next_column()?.expect("as many as the schema has");
        match &column.values {
            Values::Texts(values) => {
                let bytes = |text: &String| ByteArray::from(text.as_str());
                let (given, there) = dense(values, bytes);
                to.typed::<ByteArrayType>()
                    .write_batch(&given, Some(&there), None)?;
            }
            Values::Ints(values) => {
                let (given, there) = dense(values, |n| *n);
                to.typed::<Int64Type>()
                    .write_batch(&given, Some(&there), None)?;
            }
            Values::Floats(values) => {
                let (given, there) = dense(values, |x| *x);
                to.typed::<DoubleType>()
                    .write_batch(&given, Some(&there), None)?;
            }
            Values::Flags(values) => {
                let (given, there) = dense(values, |flag| *flag);
                to.typed::<BoolType>()
                    .write_batch(&given, Some(&there), None)?;
            }
        }
        to.close()?;
    }
    group.close()?;
    file.close()?;
    Ok(part.place(path)?)
}

/// The values that are there, and for each row whether there is one.
fn dense<T, U>(values: &[Option<T>], of: impl Fn(&T) -> U) -> (Vec<U>, Vec<i16>) {
    let given = values.iter().flatten().map(of).collect();
    let there = values.iter().map(|v| i16::from(v.is_some())).collect();
    (given, there)
}

#[cfg(test)]
mod tests {
    use parquet::file::reader::{FileReader, SerializedFileReader};

    use std::fs::File;

    use super::*;

    fn table() -> Vec<Column> {
        let column = |name: &str, values| Column {
            name: name.to_owned(),
            values,
        };
        vec![
            column(
                "setting",
                Values::Texts(vec![Some("a, \"b\"".into()), None, Some("c".into())]),
            ),
            column("seed", Values::Ints(vec![Some(1), Some(-2), None])),
            column("metric", Values::Floats(vec![Some(0.1), None, Some(1e-9)])),
            column(
                "reached",
                Values::Flags(vec![None, Some(true), Some(false)]),
            ),
        ]
    }

    #[test]
    fn csv_quotes_what_it_must_and_leaves_out_what_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.csv");
        write_csv(&table(), &path).unwrap();
        let want = "setting,seed,metric,reached\n\"a, \"\"b\"\"\",1,0.1,\n,-2,,true\nc,,0.000000001,false\n";
        assert_eq!(std::fs::read_to_string(&path).unwrap(), want);
        assert!(!folder.path().join("results.csv.part").exists());
    }

    #[test]
    fn parquet_reads_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results.parquet");
        write_parquet(&table(), &path).unwrap();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        let rows: Vec<String> = reader
            .get_row_iter(None)
            .unwrap()
            .map(|row| row.unwrap().to_string())
            .collect();
        let want = [
            "{setting: \"a, \"b\"\", seed: 1, metric: 0.1, reached: null}",
            "{setting: null, seed: -2, metric: null, reached: true}",
            "{setting: \"c\", seed: null, metric: 0.000000001, reached: false}",
        ];
        assert_eq!(rows, want);
    }
}
