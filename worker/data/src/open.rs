//! Samples of any form, known by what is there.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use crate::arrays::Arrays;
use crate::files::list;
use crate::hdf5::{ENDINGS, Hdf5Folder, has_samples};
use crate::names::listed;
use crate::packed::Packed;
use crate::processes::Processes;
use crate::{Cache, DataError, Joined, Layout, Source, manifest};

/// What [`open`] understands, for messages.
const UNDERSTOOD: &str = "a packed file (.pack) or a folder of them; a folder of HDF5 or NetCDF-4 files, one of them, or a manifest; arrays of NumPy (.npy, .npz) or a folder of them";

/// A form of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Packed,
    Hdf5,
    Manifest,
    Npy,
    Npz,
}

/// Opens samples in whatever form they have. With more than one reader HDF5 files are read by so many
/// [processes](Processes), since their library locks; the other forms by the threads that ask. With a cache files
/// are read from its copies, which are made when a file is read first, or [ahead](crate::stage); opening copies
/// nothing.
///
/// # Errors
/// Nothing there that is understood, or more than one form in a folder; a layout for packed files, which have
/// names and kinds of their own; what opening the form says.
pub fn open(
    path: &Path,
    layout: Option<&Layout>,
    readers: usize,
    cache: Option<Arc<Cache>>,
) -> Result<Box<dyn Source>, DataError> {
    let metadata = std::fs::metadata(path).map_err(|error| DataError::of_system(path, &error))?;
    if metadata.is_dir() {
        return folder(path, layout, readers, cache);
    }
    let form = of_file(path)?.ok_or_else(|| {
        let reason =
            format!("it is no file of samples that is understood; understood are {UNDERSTOOD}");
        DataError::file(path, reason)
    })?;
    match form {
        Form::Packed => Ok(Box::new(packed(path, layout)?.cached(cache.as_ref()))),
        Form::Hdf5 | Form::Manifest => hdf5(Hdf5Folder::open(path, layout)?, path, readers, cache),
        Form::Npy | Form::Npz => Ok(Box::new(Arrays::open(path, layout)?.cached(cache.as_ref()))),
    }
}

fn folder(
    path: &Path,
    layout: Option<&Layout>,
    readers: usize,
    cache: Option<Arc<Cache>>,
) -> Result<Box<dyn Source>, DataError> {
    if path.join(manifest::FILE).exists() {
        return hdf5(Hdf5Folder::open(path, layout)?, path, readers, cache);
    }
    let names = list(path)?;
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    let mut forms = Vec::new();
    for name in &names {
        if let Some(form) = of_name(name) {
            *found.entry(ending(name)).or_default() += 1;
            if !forms.contains(&form) {
                forms.push(form);
            }
        }
    }
    let of_form = |form: Form| names.iter().filter(move |name| of_name(name) == Some(form));
    match forms[..] {
        [Form::Packed] => {
            let sources = of_form(Form::Packed).map(|name| -> Result<Box<dyn Source>, DataError> {
                let packed = packed(&path.join(name), layout)?;
                Ok(Box::new(packed.cached(cache.as_ref())))
            });
            joined(sources.collect::<Result<_, _>>()?)
        }
        [Form::Npz] => {
            let sources = of_form(Form::Npz).map(|name| -> Result<Box<dyn Source>, DataError> {
                let arrays = Arrays::open(&path.join(name), layout)?;
                Ok(Box::new(arrays.cached(cache.as_ref())))
            });
            joined(sources.collect::<Result<_, _>>()?)
        }
        [Form::Npy] => {
            let arrays = Arrays::open(path, layout)?;
            Ok(Box::new(arrays.cached(cache.as_ref())))
        }
        [Form::Hdf5] => {
            let folder = Hdf5Folder::of_names(path, names, layout)?;
            hdf5(folder, path, readers, cache)
        }
        [] => {
            let there = match names.is_empty() {
                true => "the folder is empty".into(),
                false => format!(
                    "the folder has {}",
                    listed(names.iter().map(String::as_str))
                ),
            };
            let reason =
                format!("{there}, and nothing of it is understood; understood are {UNDERSTOOD}");
            Err(DataError::file(path, reason))
        }
        _ => {
            let counts = found
                .iter()
                .map(|(ending, count)| format!("{count} .{ending}"));
            let counts: Vec<_> = counts.collect();
            let there = listed(counts.iter().map(String::as_str));
            let reason = format!(
                "the folder has files of several forms ({there}): name one of them, or a folder with one form"
            );
            Err(DataError::file(path, reason))
        }
    }
}

fn joined(mut sources: Vec<Box<dyn Source>>) -> Result<Box<dyn Source>, DataError> {
    match sources.len() {
        1 => Ok(sources.remove(0)),
        _ => Ok(Box::new(Joined::new(sources)?)),
    }
}

fn packed(path: &Path, layout: Option<&Layout>) -> Result<Packed, DataError> {
    if layout.is_some() {
        let reason = "it is packed, with names and kinds of its own: leave the layout away, or pack again with it";
        return Err(DataError::file(path, reason));
    }
    Packed::open(path)
}

fn hdf5(
    source: Hdf5Folder,
    path: &Path,
    readers: usize,
    cache: Option<Arc<Cache>>,
) -> Result<Box<dyn Source>, DataError> {
    if readers <= 1 {
        return Ok(Box::new(source.cached(cache)));
    }
    let layout = source.layout().clone();
    Ok(Box::new(Processes::start(
        Box::new(source),
        path,
        Some(&layout),
        readers,
        cache,
    )?))
}

/// The form of a file, by what it begins with.
fn of_file(path: &Path) -> Result<Option<Form>, DataError> {
    let failed = |error: std::io::Error| DataError::of_system(path, &error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut head = Vec::new();
    file.take(8).read_to_end(&mut head).map_err(failed)?;
    let by_name = || path.to_str().and_then(of_name);
    Ok(match head[..] {
        [b'T', b'W', b'P', b'A', b'C', b'K', ..] => Some(Form::Packed),
        [0x89, b'H', b'D', b'F', ..] => Some(Form::Hdf5),
        [0x93, b'N', b'U', b'M', b'P', b'Y', ..] => Some(Form::Npy),
        [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Form::Npz),
        _ if manifest::is_manifest(path)? => Some(Form::Manifest),
        // One that is damaged, or has a block of its user's in front: whoever reads the form says what is wrong.
        _ => by_name(),
    })
}

/// The form of a file in a folder, by its name.
fn of_name(name: &str) -> Option<Form> {
    match ending(name) {
        "pack" => Some(Form::Packed),
        "npy" => Some(Form::Npy),
        "npz" => Some(Form::Npz),
        ending if ENDINGS.contains(&ending) && has_samples(name) => Some(Form::Hdf5),
        _ => None,
    }
}

fn ending(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, ending)| ending)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Field, Kind, Memory, packed, read_batch};

    fn pack(path: &Path, values: &[u8]) {
        let fields = [Field::new("x", Kind::U8, &[])];
        let mut writer =
            packed::Writer::create(path, &fields, packed::Settings::default()).unwrap();
        for value in values {
            writer.push("x", &[&[*value]]).unwrap();
        }
        writer.finish().unwrap();
    }

    fn hdf5(path: &Path, values: &[u8]) {
        let file = hdf5_metno::File::create(path).unwrap();
        file.new_dataset_builder()
            .with_data(values)
            .create("x")
            .unwrap();
    }

    fn npy(path: &Path, values: &[u8]) {
        let text = format!(
            "{{'descr': '|u1', 'fortran_order': False, 'shape': ({},)}}\n",
            values.len()
        );
        let length = (text.len() as u16).to_le_bytes();
        let bytes = [b"\x93NUMPY\x01\x00", &length[..], text.as_bytes(), values].concat();
        std::fs::write(path, bytes).unwrap();
    }

    fn npz(path: &Path, values: &[u8]) {
        let entry = path.with_extension("entry");
        npy(&entry, values);
        let mut writer = zip::ZipWriter::new(std::fs::File::create(path).unwrap());
        let options = zip::write::SimpleFileOptions::default();
        writer
            .start_file(
                "x.npy",
                options.compression_method(zip::CompressionMethod::Stored),
            )
            .unwrap();
        std::io::Write::write_all(&mut writer, &std::fs::read(&entry).unwrap()).unwrap();
        writer.finish().unwrap();
        std::fs::remove_file(entry).unwrap();
    }

    fn opened(path: &Path, layout: Option<&str>) -> Result<Vec<u8>, String> {
        let layout = layout.map(|layout| layout.parse().unwrap());
        let source = open(path, layout.as_ref(), 1, None).map_err(|error| error.to_string())?;
        assert_eq!(source.fields(), [Field::new("x", Kind::U8, &[])]);
        let samples: Vec<_> = (0..source.len()).collect();
        let batch = read_batch(&*source, &samples, &mut Memory {}).unwrap();
        Ok(batch.columns[0].values.clone())
    }

    #[test]
    fn each_form_is_known_by_what_is_there() {
        let layout = Some("x=x[samples]");
        type Write = fn(&Path, &[u8]);
        let forms: [(&str, Write, Option<&str>); 4] = [
            ("pack", pack, None),
            ("h5", hdf5, layout),
            ("nc", hdf5, layout),
            ("npz", npz, None),
        ];
        for (ending, write, layout) in forms {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(format!("{name}.{ending}"));
            write(&at("9"), &[1, 2]);
            let unnamed = folder.path().join("unnamed");
            std::fs::copy(at("9"), &unnamed).unwrap();
            assert_eq!(opened(&unnamed, layout), Ok(vec![1, 2]), "{ending}");
            assert_eq!(opened(&at("9"), layout), Ok(vec![1, 2]), "{ending}");
            assert_eq!(opened(folder.path(), layout), Ok(vec![1, 2]), "{ending}");
            write(&at("10"), &[3]);
            // As DeepCAM has it beside samples of any form.
            hdf5(&folder.path().join("stats.h5"), &[0]);
            assert_eq!(opened(folder.path(), layout), Ok(vec![1, 2, 3]), "{ending}");
        }
        let folder = tempfile::tempdir().unwrap();
        npy(&folder.path().join("x.npy"), &[4, 5]);
        assert_eq!(opened(folder.path(), None), Ok(vec![4, 5]));
        assert_eq!(opened(&folder.path().join("x.npy"), None), Ok(vec![4, 5]));
    }

    #[test]
    fn manifests_are_opened_by_their_folder_or_their_name() {
        let folder = tempfile::tempdir().unwrap();
        hdf5(&folder.path().join("a.h5"), &[7]);
        let layout = "x=x[samples]".parse().unwrap();
        let source = Hdf5Folder::open(folder.path(), Some(&layout)).unwrap();
        let other = folder.path().join("m");
        source.write_manifest(&other).unwrap();
        assert_eq!(opened(&other, None), Ok(vec![7]));
        std::fs::rename(other, folder.path().join(manifest::FILE)).unwrap();
        assert_eq!(opened(folder.path(), None), Ok(vec![7]));
    }

    #[test]
    fn what_is_not_understood_is_listed() {
        let folder = tempfile::tempdir().unwrap();
        let refused = |path: &Path, layout: Option<&str>, want: &str| {
            let error = opened(path, layout).unwrap_err();
            assert!(error.contains(want), "{error}");
        };
        refused(&folder.path().join("none"), None, "none: No such file");
        refused(
            folder.path(),
            None,
            "the folder is empty, and nothing of it is understood; understood are a packed file",
        );
        let text = folder.path().join("readme.txt");
        std::fs::write(&text, "hello").unwrap();
        refused(
            folder.path(),
            None,
            "the folder has readme.txt, and nothing of it is understood",
        );
        refused(
            &text,
            None,
            "readme.txt: it is no file of samples that is understood; understood are",
        );
        let broken = folder.path().join("a.h5");
        std::fs::write(&broken, "hello").unwrap();
        refused(&broken, None, "a.h5: it is no HDF5 or NetCDF-4 file");
        pack(&folder.path().join("b.pack"), &[1]);
        pack(&folder.path().join("c.pack"), &[1]);
        refused(
            folder.path(),
            None,
            "files of several forms (1 .h5, 2 .pack): name one",
        );
        std::fs::remove_file(broken).unwrap();
        refused(
            folder.path(),
            Some("x=x"),
            "b.pack: it is packed, with names and kinds of its own",
        );
        std::fs::write(folder.path().join("d.pack"), "hello").unwrap();
        refused(folder.path(), None, "d.pack: it is no packed file");
    }
}
