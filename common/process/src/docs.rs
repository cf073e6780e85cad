//! Pages of the documentation, which errors lead to.

use std::path::{Path, PathBuf};

/// A page of the documentation, by its file's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Docs(&'static str);

macro_rules! pages {
    ($($name:ident => $file:literal,)*) => {
        impl Docs {
            $(#[doc = concat!("`docs/", $file, "`")] pub const $name: Self = Self($file);)*

            #[cfg(test)]
            const ALL: &[Self] = &[$(Self::$name),*];
        }
    };
}

pages! {
    BENCH => "bench.md",
    COMMANDS => "commands.md",
    CONFIGURATION => "configuration.md",
    DATA => "data.md",
    EXPERIMENTS => "experiments.md",
    FAULTS => "faults.md",
    GPU => "gpu.md",
    RUN_FOLDER => "run-folder.md",
    SCALE => "scale.md",
    SECURITY => "security.md",
    SLURM => "slurm.md",
    SNAPSHOTS => "snapshots.md",
    WATCHING => "watching.md",
}

impl Docs {
    /// Where it lies: beside an installed program, or in the source tree that the program was built in, relative to it.
    pub fn path(self) -> PathBuf {
        let program = std::env::current_exe().unwrap_or_default();
        installed(&program, self.0).unwrap_or_else(|| Path::new("docs").join(self.0))
    }

    /// Complains, as [`complain!`](crate::complain) does, that this page has more.
    pub fn point(self) {
        crate::complain!("see {}", self.path().display());
    }

    /// The same for sections of the page, whose headings are single words.
    pub fn point_to(self, sections: &[&str]) {
        let path = self.path();
        for section in sections {
            crate::complain!("see {}#{section}", path.display());
        }
    }
}

/// The page of an installed program, `PREFIX/bin/NAME`, if it is there.
fn installed(program: &Path, page: &str) -> Option<PathBuf> {
    let prefix = program.parent()?.parent()?;
    let path = prefix.join("share/doc/tradewind").join(page);
    path.is_file().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_page_is_there() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        for page in Docs::ALL {
            assert!(docs.join(page.0).is_file(), "{page:?}");
        }
    }

    #[test]
    fn an_installed_program_has_its_pages_beside_it() {
        let prefix = tempfile::tempdir().unwrap();
        let program = prefix.path().join("bin/tradewind");
        assert_eq!(installed(&program, "slurm.md"), None);
        let pages = prefix.path().join("share/doc/tradewind");
        std::fs::create_dir_all(&pages).unwrap();
        std::fs::write(pages.join("slurm.md"), "# Slurm").unwrap();
        assert_eq!(
            installed(&program, "slurm.md"),
            Some(pages.join("slurm.md"))
        );
    }
}
