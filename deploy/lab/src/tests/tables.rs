//! What the page of an experiment tells in words and tables.

use super::analysis::{line, summed, target};
use crate::line::Line;
use crate::origin::Origin;
use crate::page::{Page, page};
use crate::reading::Exchanged;
use crate::table::{Column, Values};
use crate::tests::page::{each_reading, page_of};

fn told(lines: Vec<Line>) -> String {
    page_of(&summed(lines), &Origin::default())
}

/// Its runs exchange so many bytes each.
fn exchanging(mut line: Line, bytes: u64) -> Line {
    each_reading(&mut line, |reading| {
        reading.summary.exchanged = Some(Exchanged {
            pushed_bytes: bytes / 4,
            pulled_bytes: bytes - bytes / 4,
        });
    });
    line
}

/// The first table of a page, row by row; `svg` in the place of pictures.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let begin = page.find("<table>").unwrap();
    let table = page[begin..].split("</table>").next().unwrap();
    table.split("<tr").skip(1).map(cells_of).collect()
}

fn cells_of(row: &str) -> Vec<&str> {
    let kind = if row.contains("<th>") { "th" } else { "td" };
    let (begin, end) = (format!("<{kind}"), format!("</{kind}>"));
    let cells = row.split(&begin).skip(1).map(|cell| {
        let cell = cell.split(&end).next().unwrap();
        let (_, content) = cell.split_once('>').unwrap();
        if content.starts_with("<svg") {
            "svg"
        } else {
            content
        }
    });
    cells.collect()
}

#[test]
fn a_mean_stands_with_the_ends_of_its_interval() {
    let page = told(vec![
        line("sync", true, &[8, 10]),
        line("async", false, &[4, 5]),
    ]);
    let rows = rows(&page);
    // t of one degree of freedom is 12.706, and the standard error of 4 and 5 one half.
    assert_eq!(rows[2][1], "4.500<small>-1.853 … 10.853</small>");
    assert_eq!(rows[2][2], "45.00<small>-18.53 … 108.53</small>");
    assert_eq!(rows[2][3], "2.000×<small>2.000 … 2.000</small>");
    assert_eq!(rows[2][5], "0.6000<small>0.6000 … 0.6000</small>");
}

#[test]
fn a_table_has_a_row_for_each_setting_and_says_what_it_came_to() {
    let page = told(vec![
        exchanging(line("sync", true, &[8]), 4_000_000),
        exchanging(line("async", false, &[4]), 8_000_000),
    ]);
    let rows = rows(&page);
    assert_eq!(rows.len(), 3);
    assert_eq!(
        rows[0],
        [
            "setting",
            "time to target<br>s",
            "samples to target",
            "times sooner than the<br>best synchronous",
            "svg",
            "error at the end<br>K",
            "held-out error<br>K",
            "of it more than<br>sync",
            "exchanged<br>MB",
            "training<br>s",
        ]
    );
    assert_eq!(
        rows[1],
        [
            "<i class=\"dot\"></i>sync<small>the baseline</small>",
            "8.000",
            "80.00",
            "1<small>the best</small>",
            "svg",
            "0.6000",
            "0.7000",
            "–",
            "4.000",
            "1.000",
        ]
    );
    assert_eq!(
        rows[2],
        [
            "<i class=\"dot\"></i>async",
            "4.000",
            "40.00",
            "2.000×",
            "svg",
            "0.6000",
            "0.7000",
            "0.0000",
            "8.000",
            "1.000",
        ]
    );
    for title in ["2.000 times", "one seed: 2.000 times"] {
        assert!(page.contains(&format!("<title>{title}</title>")), "{title}");
    }
}

#[test]
fn a_miss_is_told_in_the_place_of_a_mean() {
    let page = told(vec![
        line("sync", true, &[8, 8, 8]),
        line("async", false, &[4, 0, 4]),
    ]);
    let rows = rows(&page);
    assert_eq!(rows[2][1..4], ["2 of 3", "2 of 3", "–"]);
    assert_eq!(page.matches("<td class=\"miss\">2 of 3</td>").count(), 2);
    assert!(
        !rows[0].contains(&"exchanged<br>MB"),
        "all exchange the same"
    );
}

#[test]
fn everything_has_its_place() {
    let page = told(vec![line("sync", true, &[10]), line("async", false, &[5])]);
    let places = [
        "<h1>a &amp; b</h1>",
        "<p class=\"facts\">",
        "<section><p class=\"verdict\"><b>async</b> reached",
        "<table>",
        "<h3>At other targets",
        "<h3>Validation</h3>",
        "<h3>Training loss</h3>",
        "<h3>Where the time went</h3>",
        "<h3>Delay <span",
        "<h3>Lag <span",
        "<h2>To run it again</h2>",
        "<summary>Every run</summary>",
        "<summary>What the settings differ in</summary>",
        "<summary>What they share: every other key, resolved</summary>",
    ];
    let found = places.map(|text| page.find(text).unwrap_or_else(|| panic!("no {text}")));
    assert!(found.is_sorted(), "{found:?}");
    assert!(!page.contains("Every trial"), "there were none");
    for rule in [
        ".s0{--c:#0072b2}.s1{--c:#d55e00}",
        "body:has(.chip.s1:hover) .curve:not(.s1)",
    ] {
        assert!(page.contains(rule), "{rule}");
    }
}

#[test]
fn whoever_wants_to_run_it_again_finds_what_that_takes() {
    let mut lines = vec![line("sync", true, &[8]), line("async", false, &[4])];
    for (line, consistency) in lines.iter_mut().zip(["\"sync\"", "\"async\""]) {
        line.panel = "slow".into();
        let keys = [
            ("model.name", "\"mnist\""),
            ("train.batch", "4"),
            ("train.consistency", consistency),
            ("train.samples", "80"),
        ];
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        line.keys = keys.map(owned).into();
    }
    let column = |name: &str, values| Column {
        name: name.to_owned(),
        values,
    };
    let trials = ["sync-tune-0.1", "sync-tune-0.3"];
    let trials = [
        column(
            "trial",
            Values::Texts(trials.map(|id| Some(id.to_owned())).into()),
        ),
        column("metric_validation", Values::Floats(vec![Some(0.25), None])),
    ];
    let files = [
        ("e.toml".to_owned(), "name = \"e\"".to_owned()),
        (
            "the base configuration".to_owned(),
            "[run] # & more".to_owned(),
        ),
    ];
    let lines = summed(lines);
    let page = page(&Page {
        title: "a & b",
        about: "Which is <sooner>?",
        target: Some(&target()),
        lines: &lines,
        trials: &trials,
        origin: &Origin::default(),
        command: "tradewind experiment <e>.toml",
        files: &files,
    });
    for text in [
        "<title>a &amp; b</title>",
        "<h1>a &amp; b</h1><p class=\"about\">Which is &lt;sooner&gt;?</p><p class=\"facts\">",
        "<b>2</b> runs of <b>2</b> settings · seeds <b>1</b> · target: <b>error ≤ 0.5 K</b>, twice in a row, looked at every 10 samples</p>",
        "pace on: the computation of a step lasts at least <b>0.1 s</b>",
        " · Tradewind 0</p>",
        "<section><h2>slow</h2>",
        "<h2>To run it again</h2><pre>tradewind experiment &lt;e&gt;.toml</pre><details>",
        "<summary>e.toml</summary><pre>name = &quot;e&quot;</pre></details>",
        "<summary>the base configuration</summary><pre>[run] # &amp; more</pre></details>",
        "<summary>Every run</summary><div class=\"wide\"><table class=\"cells\"><tr><th>run</th>",
        "<tr><td>sync-1</td><td>sync slow</td><td>1</td><td>completed</td><td>8.0</td><td>80</td><td>0.6000</td><td>0.7000</td><td>0.0 %</td></tr>",
        "<summary>Every trial of the tuning</summary><div class=\"wide\"><table class=\"cells\"><tr><th>trial</th><th>metric_validation</th></tr><tr><td>sync-tune-0.1</td><td>0.25</td></tr><tr><td>sync-tune-0.3</td><td></td></tr></table></div></details>",
        "<summary>What the settings differ in</summary><pre># sync, slow\ntrain.consistency = &quot;sync&quot;\n\n# async, slow\ntrain.consistency = &quot;async&quot;</pre></details>",
        "<summary>What they share: every other key, resolved</summary><pre>[model]\nname = &quot;mnist&quot;\n\n[train]\nbatch = 4\nsamples = 80</pre></details></section>",
    ] {
        assert!(page.contains(text), "{text} is not in {page}");
    }
}

#[test]
fn who_lost_updates_on_the_way_is_marked_and_a_footnote_says_how_many() {
    let lossy = |mut line: Line| {
        each_reading(&mut line, |reading| {
            reading.summary.faults.lost = serde_json::json!({"updates": 312, "samples": 640});
        });
        line
    };
    let page = told(vec![
        line("sync", true, &[8]),
        lossy(line("async", false, &[4])),
    ]);
    let rows = rows(&page);
    assert!(rows[1][0].contains("</i>sync<"), "{}", rows[1][0]);
    assert!(rows[2][0].contains("</i>async †"), "{}", rows[2][0]);
    let footnote = "<small>† updates that servers had acknowledged were lost on the way, and trained again or not: async-1: 312 updates of blocks (640 samples)</small>";
    assert!(page.contains(footnote));
    let without = told(vec![line("sync", true, &[8])]);
    assert!(!without.contains('†'));
}
