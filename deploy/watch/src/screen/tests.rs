use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::Color;
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcgetattr, tcsetwinsize};
use tokio::sync::watch::channel;
use tradewind_folder::found::FoundRun;

use super::draw::{Paint, draw, heights, wrapped};
use super::keys::View;
use super::show;
use super::spark::Course;
use crate::curve::Point;
use crate::fixture::{folder, lines, rows, with_faults};
use crate::observe::Observer;
use crate::standing::Standing;
use crate::standing::tests::standing as live;
use crate::stream::Sight;
use crate::words::number;

const PAINT: Paint = Paint { has_colours: true };

fn sight(path: &Path, standing: Option<Standing>, seconds: f64) -> Sight {
    let place = FoundRun::find(Some(path)).unwrap();
    let now = 1.7e9 + seconds;
    let (_to, standing) = channel(standing.map(|standing| (now, standing.into())));
    Observer::new(place, standing).look(now)
}

fn drawn(sight: &Sight, view: &mut View, (width, height): (u16, u16), paint: Paint) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    let draw = |frame: &mut ratatui::Frame<'_>| draw(frame, "r", Some(sight), view, paint);
    terminal.draw(draw).unwrap();
    terminal.backend().buffer().clone()
}

fn text(buffer: &Buffer) -> Vec<String> {
    let width = usize::from(buffer.area.width);
    let line = |cells: &[ratatui::buffer::Cell]| {
        let line: String = cells.iter().map(ratatui::buffer::Cell::symbol).collect();
        line.trim_end().to_owned()
    };
    buffer.content.chunks(width).map(line).collect()
}

fn press(view: &mut View, code: KeyCode) -> bool {
    view.key(KeyEvent::new(code, KeyModifiers::NONE))
}

/// The words of the line that begins so.
fn words<'a>(screen: &'a [String], begin: &str) -> Vec<&'a str> {
    let line = screen.iter().find(|line| line.starts_with(begin));
    let line = line.unwrap_or_else(|| panic!("no line begins with {begin:?} in {screen:#?}"));
    line.split_whitespace().collect()
}

#[test]
fn rows_are_what_is_in_the_records_of_a_run_with_faults() {
    let root = tempfile::tempdir().unwrap();
    with_faults(root.path());
    let sight = sight(root.path(), None, 1000.0);
    let mut view = View::default();
    let screen = text(&drawn(&sight, &mut view, (110, 40), PAINT));
    assert_eq!(screen[0], "r  completed");
    let head = screen[1..3].join(" ");
    assert!(head.contains("80 % of 12000 samples"), "{head}");
    assert!(head.contains("validation RMSE 0.7500 K"), "{head}");
    assert!(!head.contains("left"), "it trains no longer: {head}");
    let titles = words(&screen, "group  does");
    let column = |name: &str| titles.iter().position(|title| *title == name).unwrap();
    let own = rows();
    for group in 0..3 {
        let own: Vec<_> = own.iter().filter(|row| row.group == group).collect();
        let last = own.last().unwrap();
        let losses: Vec<f64> = own
            .iter()
            .rev()
            .take(16)
            .filter_map(|row| row.loss)
            .collect();
        let loss = losses.iter().sum::<f64>() / losses.len() as f64;
        let told = words(&screen, &format!("{group}      ended"));
        // `2 of 2` ranks are three words.
        let of = |name: &str| told[column(name) + 2];
        assert_eq!(of("exchanges"), (last.clock + 1).to_string());
        assert_eq!(of("lag"), last.lag.to_string());
        assert_eq!(of("delay"), last.delay.unwrap().to_string());
        assert_eq!(of("loss"), number(loss));
    }
    let servers = screen
        .iter()
        .position(|line| line.starts_with("server "))
        .unwrap();
    assert!(
        screen[servers + 1].starts_with("0       ended"),
        "{screen:#?}"
    );
    assert!(screen[servers + 1].contains("shard 0, 1"), "{screen:#?}");
    let shards = screen
        .iter()
        .position(|line| line.starts_with("shard "))
        .unwrap();
    assert!(screen[shards + 2].contains("296 to 297"), "{screen:#?}");
    let events = screen
        .iter()
        .position(|line| line.starts_with("events"))
        .unwrap();
    let told = [
        "0:22 ● group 2 forms again",
        "0:22 ● rank 1 of group 2 was killed by signal 9",
        "0:13 ● server 1 is started again, as life 2",
        "0:13 ● server 0 answers for shard 1: server 1 is gone",
        "0:13 ● server 1 was killed by signal 9",
        "0:09 · snapshot 1 is whole",
        "-0:02 · the run is ready",
    ];
    let shown: Vec<&str> = screen[events + 1..]
        .iter()
        .map(|line| line.trim())
        .collect();
    let told = told.map(|line| line.replace("● group 2 forms", "· group 2 forms"));
    assert_eq!(shown[..told.len()], told, "and nothing of another run");
    // The loss falls, from the top of two rows of bars; the last group trains alone, and slower.
    let bars = |name: &str| {
        let at = screen
            .iter()
            .rposition(|line| line.starts_with(name))
            .unwrap();
        let row = |line: &String| line.chars().skip(24).collect::<String>();
        [row(&screen[at]), row(&screen[at + 1])]
    };
    let [above, below] = bars("loss 0");
    assert!(
        above.starts_with('█') && below.ends_with('▁'),
        "{screen:#?}"
    );
    assert!(bars("samples/s ")[1].contains('█'), "{screen:#?}");
}

#[test]
fn a_run_that_goes_on_says_what_each_group_does() {
    let root = tempfile::tempdir().unwrap();
    folder(root.path());
    std::fs::write(root.path().join("metrics.jsonl"), lines(rows())).unwrap();
    let last = rows().iter().map(|row| row.wall).fold(0.0, f64::max) - 1.7e9;
    let sight = sight(root.path(), Some(live()), last + 0.1);
    let screen = text(&drawn(&sight, &mut View::default(), (110, 40), PAINT));
    assert_eq!(screen[0], "r  training  2 groups are silent");
    assert!(words(&screen, "0 ").starts_with(&["0", "silent", "for"]));
    // The coordinator waits for a rank of the second; it does not know the third.
    assert_eq!(words(&screen, "1      g")[1], "gathering");
    assert!(words(&screen, "2      c").starts_with(&["2", "computing", "77", "%"]));
    let shard = words(&screen, "1      nobody").join(" ");
    assert!(
        shard.ends_with("server 2, incarnation 1 (silent for 12 s)"),
        "{shard}"
    );
    assert!(
        screen.iter().any(|line| line.contains(" samples/s · ")),
        "{screen:#?}"
    );
    assert!(
        screen.iter().any(|line| line.contains(" left · ")),
        "{screen:#?}"
    );
}

#[test]
fn keys_show_faults_ranks_and_help_and_scroll() {
    let root = tempfile::tempdir().unwrap();
    with_faults(root.path());
    let sight = sight(root.path(), None, 1000.0);
    let mut view = View::default();
    let see = |view: &mut View| text(&drawn(&sight, view, (80, 24), PAINT)).join("\n");
    let all = see(&mut view);
    assert!(
        all.contains("snapshot 1 is whole") && all.contains("? help"),
        "{all}"
    );
    press(&mut view, KeyCode::Char('f'));
    let faults = see(&mut view);
    assert!(
        faults.contains("faults, newest first") && !faults.contains("snapshot 1"),
        "{faults}"
    );
    assert!(faults.contains("rank 1 of group 2 was killed"), "{faults}");
    press(&mut view, KeyCode::Char('f'));
    press(&mut view, KeyCode::Char('r'));
    see(&mut view);
    press(&mut view, KeyCode::End);
    let ranks = see(&mut view);
    assert!(
        ranks.contains("rank 1: 127.0.0.1, process 4000005, started 2 times"),
        "{ranks}"
    );
    press(&mut view, KeyCode::Char('?'));
    assert!(see(&mut view).contains("leave; the run goes on"));
    press(&mut view, KeyCode::Esc);
    assert!(!see(&mut view).contains("leave; the run goes on"));
    // Around all parts, and to the end of one.
    for title in ["server", "shard", "events", "group"] {
        press(&mut view, KeyCode::Tab);
        let buffer = drawn(&sight, &mut view, (80, 24), PAINT);
        let marked = |line: &[ratatui::buffer::Cell]| {
            line[0]
                .modifier
                .contains(ratatui::style::Modifier::REVERSED)
        };
        let at = buffer.content.chunks(80).position(marked).unwrap();
        assert!(text(&buffer)[at].starts_with(title), "{title}");
    }
    press(&mut view, KeyCode::Char('e'));
    let short = |view: &mut View| text(&drawn(&sight, view, (80, 8), PAINT)).join("\n");
    assert!(short(&mut view).contains("group 2 forms again"));
    press(&mut view, KeyCode::End);
    let end = short(&mut view);
    assert!(
        end.contains("the run is ready") && !end.contains("forms again"),
        "{end}"
    );
    press(&mut view, KeyCode::Up);
    assert!(!short(&mut view).contains("the run is ready"));
    assert!(press(&mut view, KeyCode::Char('q')));
    assert!(view.key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    assert!(!press(&mut view, KeyCode::Char('c')));
}

#[test]
fn it_fits_into_any_terminal() {
    let root = tempfile::tempdir().unwrap();
    with_faults(root.path());
    let sight = sight(root.path(), Some(live()), 1000.0);
    for (width, height) in [(1, 1), (2, 3), (10, 5), (20, 10), (40, 13), (200, 80)] {
        for help in [false, true] {
            let mut view = View::default();
            (view.help, view.ranks) = (help, true);
            drawn(&sight, &mut view, (width, height), PAINT);
        }
    }
    // A narrow one has the columns that matter most, and cuts no word of what happened.
    let narrow = text(&drawn(&sight, &mut View::default(), (40, 30), PAINT));
    let titles = words(&narrow, "group");
    assert!(
        titles.starts_with(&["group", "does"]) && !titles.contains(&"step"),
        "{narrow:#?}"
    );
    let at = narrow
        .iter()
        .position(|line| line.contains("server 0 answers for"))
        .unwrap();
    let all = narrow[at..at + 2].join(" ");
    assert!(
        all.contains("shard 1: server 1 is gone") || all.contains("is gone"),
        "{narrow:#?}"
    );
    let mut empty = Terminal::new(TestBackend::new(40, 3)).unwrap();
    let none = |frame: &mut ratatui::Frame<'_>| draw(frame, "r", None, &mut View::default(), PAINT);
    empty.draw(none).unwrap();
    assert_eq!(
        text(empty.backend().buffer())[0],
        "run r: its folder is read"
    );
}

#[test]
fn colours_are_the_terminals_own_or_none() {
    let root = tempfile::tempdir().unwrap();
    with_faults(root.path());
    let sight = sight(root.path(), None, 1000.0);
    let colours = |has_colours| {
        let paint = Paint { has_colours };
        let buffer = drawn(&sight, &mut View::default(), (80, 24), paint);
        let all = buffer.content.iter().flat_map(|cell| [cell.fg, cell.bg]);
        let mut all: Vec<Color> = all.filter(|colour| *colour != Color::Reset).collect();
        all.dedup();
        all
    };
    assert_eq!(colours(false), []);
    let seen = colours(true);
    let own = [Color::Green, Color::Cyan, Color::Yellow, Color::Red];
    assert!(
        seen.contains(&Color::Red) && seen.iter().all(|is| own.contains(is)),
        "{seen:?}"
    );
}

#[test]
fn the_part_that_is_marked_has_most_room() {
    let check = |room, wanted: &[u16], at, want: &[u16]| {
        assert_eq!(heights(room, wanted, at), want, "{room} {wanted:?}");
    };
    check(18, &[4, 3, 3, 8], 0, &[4, 3, 3, 8]);
    check(18, &[1001, 3, 3, 8], 0, &[9, 3, 3, 3]);
    check(18, &[1001, 3, 3, 8], 3, &[4, 3, 3, 8]);
    check(30, &[4, 3], 1, &[4, 26]);
    check(5, &[4, 3, 3, 8], 2, &[0, 0, 5, 0]);
    check(0, &[4, 8], 1, &[0, 0]);
}

#[test]
fn a_course_has_a_value_for_each_place() {
    let points: Vec<Point> = rows().iter().map(Point::of).collect();
    let losses = Course::of_loss(&points, 50);
    assert_eq!(losses.values.len(), 50);
    let rates = Course::of_rate(&points, 50);
    // From the end of the first piece on all samples are somewhere, by the time that they took.
    let (least, most) = rates.range().unwrap();
    assert!(least >= 0.0 && most > 0.0);
    let bars = losses.bars(losses.range().unwrap().0, 2);
    assert_eq!(bars.iter().flatten().max(), Some(&16));
    assert!(bars.iter().flatten().all(|bar| *bar >= 1));
    assert_eq!(Course::of_loss(&[], 50).range(), None);
    assert_eq!(Course::of_loss(&points[..1], 50).values.len(), 1);
}

#[test]
fn words_are_wrapped_whole() {
    assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
    assert_eq!(wrapped("abcdefgh ij", 4), ["abcd", "efgh", "ij"]);
    assert_eq!(wrapped("", 4), [""; 0]);
}

/// How a screen of this process ends.
const END: &str = "TRADEWIND_TEST_SCREEN_ENDS";

/// The run that a played screen shows.
const RUN: &str = "TRADEWIND_TEST_SCREEN_RUN";

#[test]
#[ignore = "plays a process"]
fn plays_a_screen() {
    tradewind_process::run(|| {
        let runtime = tradewind_folder::runtime::one_thread().unwrap();
        let run = std::env::var(RUN).unwrap();
        let place = FoundRun::find(Some(Path::new(&run))).unwrap();
        let shown = runtime.block_on(async {
            if std::env::var_os(END).is_some() {
                tradewind_process::supervise("one that panics", async {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                    panic!("on purpose")
                });
            }
            show(place).await
        });
        tradewind_process::exit(i32::from(shown.is_err()))
    });
}

/// A screen in a terminal of its own, until `end` has ended it when it has been drawn: what it wrote, and its status.
/// The terminal takes lines, and echoes them, again.
fn played(end: impl FnOnce(&OwnedFd, Pid), panics: bool) -> (String, ExitStatus) {
    let root = tempfile::tempdir().unwrap();
    with_faults(root.path());
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let mut options = std::fs::OpenOptions::new();
    let own = options
        .read(true)
        .write(true)
        .open(name.to_str().unwrap())
        .unwrap();
    let size = Winsize {
        ws_row: 24,
        ws_col: 80,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&own, size).unwrap();
    let before = tcgetattr(&own).unwrap();
    let stream = || Stdio::from(own.try_clone().unwrap());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        "screen::tests::plays_a_screen",
        "--ignored",
        "--nocapture",
    ]);
    command.env(RUN, root.path()).env("TERM", "xterm");
    if panics {
        command.env(END, "panic");
    }
    command.stdin(stream()).stdout(stream()).stderr(stream());
    let mut child = command.spawn().unwrap();
    let mut reading = std::fs::File::from(master.try_clone().unwrap());
    let (to, drawn) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let (mut all, mut piece) = (Vec::new(), [0; 4096]);
        // It ends with an error when the last who has the other side open has gone.
        while let Ok(count @ 1..) = reading.read(&mut piece) {
            all.extend_from_slice(&piece[..count]);
            if all.windows(11).any(|of| of == b"r completed")
                || all.windows(9).any(|of| of == b"completed")
            {
                let _ = to.send(());
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    });
    drawn
        .recv_timeout(Duration::from_secs(120))
        .expect("it is drawn");
    end(&master, Pid::from_child(&child));
    let status = child.wait().unwrap();
    let after = tcgetattr(&own).unwrap();
    assert_eq!(after.local_modes, before.local_modes);
    assert_eq!(after.input_modes, before.input_modes);
    assert_eq!(after.output_modes, before.output_modes);
    drop((own, command));
    (reader.join().unwrap(), status)
}

/// The terminal has its former lines and its cursor again.
fn is_given_back(written: &str) {
    let taken = written.find("\x1b[?1049h").expect("it was taken over");
    let back = written.rfind("\x1b[?1049l").expect("it is given back");
    assert!(taken < back, "{written:?}");
    let (hidden, seen) = (written.rfind("\x1b[?25l"), written.rfind("\x1b[?25h"));
    assert!(hidden < seen, "{written:?}");
    // Nothing is drawn after that.
    assert!(!written[back..].contains("newest first"), "{written:?}");
}

#[test]
fn the_terminal_is_given_back_however_the_screen_ends() {
    let types = |bytes: &'static [u8]| {
        move |master: &OwnedFd, _: Pid| {
            let mut master = std::fs::File::from(master.try_clone().unwrap());
            master.write_all(bytes).unwrap();
        }
    };
    for key in [b"\x03", b"q"] {
        let (written, status) = played(types(key), false);
        is_given_back(&written);
        assert!(status.success(), "{status} {written:?}");
        assert!(written.ends_with("run r: completed\r\n"), "{written:?}");
    }
    for signal in [Signal::INT, Signal::TERM] {
        let (written, status) = played(|_, pid| kill_process(pid, signal).unwrap(), false);
        is_given_back(&written);
        assert!(status.success(), "{status} {written:?}");
    }
    let (written, status) = played(|_, _| (), true);
    is_given_back(&written);
    assert_eq!(status.code(), Some(9), "{written:?}");
    let back = written.rfind("\x1b[?1049l").unwrap();
    assert!(written[back..].contains("on purpose"), "{written:?}");
}
