//! docs/configuration.md: all sections and keys, in Markdown.

use crate::Tasks;
use crate::idle;
use crate::keys::{Key, MINIMAL, Section, sections};

/// The page, whole.
pub fn markdown() -> String {
    let links: Vec<String> = sections()
        .map(|section| format!("[`{0}`](#{0})", section.name))
        .collect();
    let mut page = format!(
        "# Configuration\n\n{WHAT}\n```toml\n{MINIMAL}```\n\n{HOW}\nSections: {}.\n",
        links.join(", ")
    );
    sections().for_each(|section| page += &chapter(section));
    page
}

/// The same of the tasks that are not built in: a section each.
pub fn of_tasks(tasks: &Tasks) -> String {
    let sections = tasks.sections();
    if sections.is_empty() {
        return "This worker program has the built-in tasks alone.\n".into();
    }
    let told = sections.iter().map(|section| {
        format!(
            "\n`model.name = {:?}` is {}.\n",
            section.name, section.about
        )
    });
    let (told, chapters): (String, String) =
        (told.collect(), sections.iter().map(chapter).collect());
    format!("# Tasks of this worker program besides the built-in ones\n{told}{chapters}")
}

fn chapter(section: &Section) -> String {
    let Section {
        name,
        about,
        example,
        keys,
    } = section;
    let rows: String = keys.iter().map(row).collect();
    let table = match keys.as_slice() {
        [] => String::new(),
        _ => format!("| key | type | default | meaning |\n|---|---|---|---|\n{rows}"),
    };
    let example = match *example {
        "" => String::new(),
        example => format!("```toml\n{example}```\n\n"),
    };
    let chapter = format!("\n## {name}\n\n{about}\n\n{example}{table}");
    chapter.trim_end().to_owned() + "\n"
}

fn row(key: &Key) -> String {
    let Key {
        name,
        kind,
        meaning,
        ..
    } = key;
    let default = key
        .default
        .map_or("required".to_owned(), |default| format!("`{default}`"));
    let only = idle::condition(key).map_or(String::new(), |when| format!(" Used only if {when}."));
    format!("| `{name}` | {kind} | {default} | {meaning}{only} |\n")
}

const WHAT: &str = "\
This page lists every key of a configuration, section by section. A configuration is a file in
[TOML](https://toml.io). Keys without a default have to be given; for the default model these are all of
them, with a `temperature.nc` of your own:
";

const HOW: &str = "\
```
tradewind config my.toml                     # check a configuration, and print it with every key
tradewind run my.toml                        # train
tradewind run my.toml --set train.batch=16   # with another value of one key; --set may be repeated
tradewind config --keys                      # print this page
```

Tradewind checks a configuration before it starts anything, and reports all that is wrong at once: the key, the
line, and the nearest right name. Settings that exclude each other are refused, with the reason. A key that has
no effect beside the others is reported as a note. `--set` takes values as in TOML; text needs no quotation
marks there.

The tables use a few words; the [glossary](glossary.md) has all of them. A **rank** is one worker process. A
**group** is a number of ranks that train synchronously, as in PyTorch's DDP. Groups train asynchronously with each
other, unless `train.consistency` is `sync`. In an **exchange** a group sends its averaged gradient to the
parameter **servers** and gets fresh parameters back; what the servers do with a gradient is an **update**.
Parameters are divided into **blocks**, and a **shard** is the blocks that one server holds.
";
