//! Draws a sight: its head, its course, its tables and what happened, in whatever room there is.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline, SparklineBar};

use super::keys::{KEYS, PARTS, Part, View};
use super::rows::{self, Cell, Column, Row, Table};
use super::spark::{Course, STEPS};
use crate::look::{Look, Tone, seconds};
use crate::stream::Sight;
use crate::words::{DASH, moment, number, or_dash, percent, rate};

/// Between two columns.
const GAP: usize = 2;

/// Lines of a part that others leave it: its titles and two rows.
const PART_LINES_MIN: u16 = 3;

/// From this height on there are two rows of bars instead of one, and the head has all of its lines.
const TALL: u16 = 32;

/// Below this one there are no bars.
const LOW: u16 = 14;

/// Columns of what stands before bars.
const LABEL: u16 = 24;

/// Colours are the terminal's own, so that they are seen on dark ones and on light ones; none with `NO_COLOR`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paint {
    pub(super) has_colours: bool,
}

impl Paint {
    pub(super) fn from_environment() -> Self {
        let asked = std::env::var_os("NO_COLOR");
        Self {
            has_colours: asked.is_none_or(|value| value.is_empty()),
        }
    }

    fn colour(self, colour: Color) -> Style {
        match self.has_colours {
            true => Style::new().fg(colour),
            false => Style::new(),
        }
    }

    fn tone(self, tone: Tone) -> Style {
        match tone {
            Tone::Plain => Style::new(),
            Tone::Good => self.colour(Color::Green),
            Tone::Busy => self.colour(Color::Cyan),
            Tone::Warn => self.colour(Color::Yellow),
            Tone::Bad => self.colour(Color::Red).add_modifier(Modifier::BOLD),
        }
    }

    fn quiet(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// A run in a line: its name, its state and the sentence about it.
pub(super) fn headline(look: &Look) -> String {
    let state = look.state.word();
    let sentence = match look.sentence.as_str() {
        "" => String::new(),
        sentence => format!(": {sentence}"),
    };
    format!("run {}: {state}{sentence}", look.facts.name)
}

/// Draws what there is of the run `name`.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    name: &str,
    sight: Option<&Sight>,
    view: &mut View,
    paint: Paint,
) {
    let all = frame.area();
    let [top, foot] = Layout::vertical([Constraint::Min(0), Constraint::Length(1)]).areas(all);
    match sight {
        Some(sight) => run(frame, top, sight, view, paint),
        None => frame.render_widget(format!("run {name}: its folder is read"), top),
    }
    let keys = "q leave  Tab part  ↑↓ scroll  f faults  r ranks  ? help";
    frame.render_widget(Span::styled(keys, paint.quiet()), foot);
    if view.help {
        help(frame, all);
    }
}

fn run(frame: &mut Frame<'_>, area: Rect, sight: &Sight, view: &mut View, paint: Paint) {
    let width = usize::from(area.width);
    let mut head = head(&sight.look, width, area.height, paint);
    // At least a part of the screen is for the rest.
    head.truncate(usize::from(area.height / 3).max(1));
    let bars = match area.height {
        TALL.. => 2,
        LOW.. => 1,
        _ => 0,
    };
    let heights = [
        Constraint::Length(head.len() as u16),
        Constraint::Length(bars),
        Constraint::Length(bars),
        Constraint::Min(0),
    ];
    let [above, losses, rates, below] = Layout::vertical(heights).areas(area);
    frame.render_widget(Paragraph::new(head), above);
    if bars > 0 {
        course(frame, losses, sight, true, paint);
        course(frame, rates, sight, false, paint);
    }
    parts(frame, below, sight, view, paint);
}

fn head(look: &Look, width: usize, height: u16, paint: Paint) -> Vec<Line<'static>> {
    let state = look.state.word();
    let tone = paint.tone(look.state.tone()).add_modifier(Modifier::BOLD);
    let mut first = vec![
        Span::styled(look.facts.name.clone(), BOLD),
        "  ".into(),
        Span::styled(state, tone),
    ];
    let used: usize = first.iter().map(Span::width).sum();
    let mut lines = Vec::new();
    if !look.sentence.is_empty() && used + 2 + Span::raw(&look.sentence).width() <= width {
        first.push(format!("  {}", look.sentence).into());
        lines.push(Line::from(first));
    } else {
        lines.push(Line::from(first));
        lines.extend(wrapped(&look.sentence, width).into_iter().map(Line::from));
    }
    let told = measures(look).join(" · ");
    lines.extend(wrapped(&told, width).into_iter().map(Line::from));
    let mut facts = vec![look.facts.how.clone(), look.facts.folder.clone()];
    facts.extend(look.jobs.iter().cloned());
    let coordinator = look.coordinator.clone();
    facts.extend(Some(coordinator).filter(|text| !text.is_empty()));
    let quiet = |text: String| Line::styled(text, paint.quiet());
    if height >= TALL {
        let all: f64 = look.time.iter().map(|part| part.rank_seconds).sum();
        let part = |part: &crate::look::TimePart| {
            (part.rank_seconds > 0.0)
                .then(|| format!("{} {}", part.what, percent(part.rank_seconds / all)))
        };
        let parts: Vec<String> = look.time.iter().filter_map(part).collect();
        let parts = wrapped(&parts.join(" · "), width);
        lines.extend(parts.into_iter().map(Line::from));
        let facts = wrapped(&facts.join(" · "), width);
        lines.extend(facts.into_iter().map(quiet));
    } else {
        lines.push(quiet(facts.join(" · ")));
    }
    lines
}

/// What is measured of the run, each in some words.
fn measures(look: &Look) -> Vec<String> {
    let measured = |of: &tradewind_common::record::Measure| {
        let unit = if of.unit.is_empty() { "" } else { " " };
        format!("{} {}{unit}{}", of.name, number(of.value), of.unit)
    };
    let mut told = vec![format!("loss {}", or_dash(look.loss, number))];
    told.extend(look.metric.iter().map(measured));
    told.extend(look.validation.iter().map(measured));
    let budget = look.facts.budget;
    if budget > 0 {
        let part = percent(look.samples as f64 / budget as f64);
        told.push(format!("{part} of {budget} samples"));
    }
    if !look.over {
        let speed = or_dash(look.samples_per_second, rate);
        told.push(format!("{speed} samples/s"));
        told.push(format!("{} left", or_dash(look.seconds_left, seconds)));
    }
    if let Some(begun) = look.begun {
        let until = if look.over {
            look.latest
        } else {
            Some(look.now)
        };
        told.push(format!(
            "trained for {}",
            moment(until.unwrap_or(begun) - begun)
        ));
    }
    told.extend(
        look.goodput
            .map(|part| format!("goodput {}", percent(part))),
    );
    told.extend(look.snapshot.as_ref().map(|of| {
        let ago = of
            .wall
            .map(|wall| format!(", {} ago", seconds((look.now - wall).max(0.0))));
        format!("snapshot {}{}", of.number, ago.unwrap_or_default())
    }));
    let lost = look.lost.filter(|lost| !lost.is_none());
    told.extend(lost.map(|lost| format!("lost {lost}")));
    told
}

/// The course of the loss, or of the samples a second.
fn course(frame: &mut Frame<'_>, area: Rect, sight: &Sight, is_loss: bool, paint: Paint) {
    let label = LABEL.min(area.width / 3);
    let across = [Constraint::Length(label), Constraint::Min(0)];
    let [words, bars] = Layout::horizontal(across).areas(area);
    let places = usize::from(bars.width);
    let (name, course, colour) = match is_loss {
        true => ("loss", Course::of_loss(&sight.joined, places), Color::Cyan),
        false => (
            "samples/s",
            Course::of_rate(&sight.joined, places),
            Color::Green,
        ),
    };
    let shown = if is_loss { number } else { rate };
    let last = course.values.iter().rev().flatten().next();
    let range = course.range();
    let range = or_dash(range, |(least, most)| {
        format!("{} to {}", shown(least), shown(most))
    });
    let mut told = vec![Line::from(format!("{name} {range}"))];
    if area.height > 1 {
        let last = or_dash(last.copied(), shown);
        told = vec![
            Line::from(format!("{name} {last}")),
            Line::styled(range, paint.quiet()),
        ];
    }
    frame.render_widget(Paragraph::new(told), words);
    let least = match (is_loss, course.range()) {
        (true, Some((least, _))) => least,
        _ => 0.0,
    };
    let heights = course.bars(least, area.height).into_iter();
    let spark = Sparkline::default()
        .data(heights.map(SparklineBar::from))
        .max(STEPS * u64::from(area.height))
        .absent_value_symbol(" ")
        .style(paint.colour(colour));
    frame.render_widget(spark, bars);
}

/// A part with its rows as lines.
struct Lines {
    part: Part,
    titles: Line<'static>,
    rows: Vec<Line<'static>>,
}

fn parts(frame: &mut Frame<'_>, area: Rect, sight: &Sight, view: &mut View, paint: Paint) {
    let width = usize::from(area.width);
    let look = &sight.look;
    let of = |part: Part| match part {
        Part::Runs => lines(part, &rows::runs(look), width, paint),
        Part::Groups => lines(part, &rows::groups(look, view.ranks), width, paint),
        Part::Servers => lines(part, &rows::servers(look), width, paint),
        Part::Shards => lines(part, &rows::shards(look), width, paint),
        Part::Events => events(sight, view.faults_only, width, paint),
    };
    let all: Vec<Lines> = PARTS.into_iter().map(of).collect();
    let there = |lines: &Lines| !lines.rows.is_empty() || lines.part == Part::Events;
    let all: Vec<Lines> = all.into_iter().filter(there).collect();
    view.there = all.iter().map(|lines| lines.part).collect();
    if !view.there.contains(&view.at) {
        view.at = view.there[0];
    }
    let at = view.there.iter().position(|part| *part == view.at);
    let at = at.expect("it is there");
    let wanted: Vec<u16> = all
        .iter()
        .map(|lines| u16::try_from(lines.rows.len() + 1).unwrap_or(u16::MAX))
        .collect();
    let mut top = area.y;
    for (lines, height) in all.into_iter().zip(heights(area.height, &wanted, at)) {
        let own = Rect {
            y: top,
            height,
            ..area
        };
        top += height;
        if height > 0 {
            part(frame, own, lines, view, paint);
        }
    }
}

fn part(frame: &mut Frame<'_>, area: Rect, lines: Lines, view: &mut View, paint: Paint) {
    let Lines { part, titles, rows } = lines;
    let shown = usize::from(area.height - 1);
    let count = rows.len();
    let above = view.above(part, count, shown);
    let below = count.saturating_sub(above + shown);
    let mut style = BOLD;
    if part == view.at {
        style = style.add_modifier(Modifier::REVERSED);
    }
    let titles_at = Rect { height: 1, ..area };
    frame.buffer_mut().set_style(titles_at, style);
    frame.render_widget(titles.style(style), titles_at);
    let more: Vec<String> = [(above, "↑"), (below, "↓")]
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, arrow)| format!("{arrow}{count}"))
        .collect();
    let more = Line::styled(more.join(" "), style).right_aligned();
    if more.width() > 0 {
        let room = (more.width() as u16).min(area.width);
        let right = Rect {
            x: area.right() - room,
            width: room,
            ..titles_at
        };
        frame.render_widget(more, right);
    }
    let below = Rect {
        y: area.y + 1,
        height: area.height - 1,
        ..area
    };
    if rows.is_empty() {
        let none = if view.faults_only {
            "no faults"
        } else {
            "nothing yet"
        };
        frame.render_widget(Span::styled(none, paint.quiet()), below);
        return;
    }
    let rows: Vec<Line<'_>> = rows.into_iter().skip(above).take(shown).collect();
    frame.render_widget(Paragraph::new(rows), below);
}

/// How many lines each part gets of `room`: a few for each, then as many as it wants for the one at `at`, then the
/// others from the top. Where there is no room for all, that one has all of it.
pub(super) fn heights(room: u16, wanted: &[u16], at: usize) -> Vec<u16> {
    let mut heights: Vec<u16> = wanted
        .iter()
        .map(|want| (*want).min(PART_LINES_MIN))
        .collect();
    let sum: u16 = heights.iter().sum();
    if sum > room {
        heights.fill(0);
        heights[at] = room;
        return heights;
    }
    let mut left = room - sum;
    let others = (0..wanted.len()).filter(|part| *part != at);
    for part in std::iter::once(at).chain(others) {
        let more = (wanted[part] - heights[part]).min(left);
        heights[part] += more;
        left -= more;
    }
    // What is left is empty, below the last.
    if let Some(last) = heights.last_mut() {
        *last += left;
    }
    heights
}

/// A table with as many of its columns as there is room for.
fn lines(part: Part, table: &Table, width: usize, paint: Paint) -> Lines {
    let columns = fitting(table, width);
    let mut titles = Vec::new();
    for (nth, (column, room)) in columns.iter().enumerate() {
        let is_last = nth + 1 == columns.len();
        let column = table.columns[*column];
        titles.extend(cell(
            column,
            column.title.into(),
            *room,
            is_last,
            Style::new(),
        ));
    }
    let mut rows = Vec::new();
    for row in &table.rows {
        match row {
            Row::Cells(cells) => {
                let mut spans = Vec::new();
                for (nth, (column, room)) in columns.iter().enumerate() {
                    let is_last = nth + 1 == columns.len();
                    let Cell { text, tone } = &cells[*column];
                    let style = paint.tone(*tone);
                    spans.extend(cell(
                        table.columns[*column],
                        text.clone(),
                        *room,
                        is_last,
                        style,
                    ));
                }
                rows.push(Line::from(spans));
            }
            Row::More(text) => {
                let own = wrapped(text, width.saturating_sub(2)).into_iter();
                rows.extend(own.map(|line| Line::styled(format!("  {line}"), paint.quiet())));
            }
        }
    }
    Lines {
        part,
        titles: Line::from(titles),
        rows,
    }
}

/// Which columns are shown, by number, and how wide each is.
fn fitting(table: &Table, width: usize) -> Vec<(usize, usize)> {
    let texts = |nth: usize| {
        table.rows.iter().filter_map(move |row| match row {
            Row::Cells(cells) => Some(cells[nth].text.as_str()),
            Row::More(_) => None,
        })
    };
    let says = |nth: usize| texts(nth).any(|text| !text.is_empty() && text != DASH);
    let wide = |nth: usize| {
        let title = table.columns[nth].title;
        texts(nth)
            .chain([title])
            .map(|text| Span::raw(text).width())
            .max()
    };
    let mut columns: Vec<(usize, usize)> = (0..table.columns.len())
        .filter(|nth| table.columns[*nth].expendable == 0 || says(*nth))
        .map(|nth| (nth, wide(nth).unwrap_or(0)))
        .collect();
    loop {
        let sum: usize = columns.iter().map(|(_, wide)| wide + GAP).sum();
        let least = columns
            .iter()
            .enumerate()
            .max_by_key(|(_, (nth, _))| table.columns[*nth].expendable);
        match least {
            Some((place, (nth, _))) if sum > width + GAP && table.columns[*nth].expendable > 0 => {
                columns.remove(place);
            }
            _ => return columns,
        }
    }
}

/// A cell with what fills its column, and the gap behind it.
fn cell(
    column: Column,
    text: String,
    room: usize,
    is_last: bool,
    style: Style,
) -> [Span<'static>; 3] {
    let empty = " ".repeat(room.saturating_sub(Span::raw(&text).width()));
    let gap = if is_last { 0 } else { GAP };
    let text = Span::styled(text, style);
    match column.is_number {
        true => [empty.into(), text, " ".repeat(gap).into()],
        false if is_last => [text, "".into(), "".into()],
        false => [text, empty.into(), " ".repeat(gap).into()],
    }
}

/// What happened, the newest first.
fn events(sight: &Sight, faults_only: bool, width: usize, paint: Paint) -> Lines {
    let told = sight.events.iter().rev().map(|told| &told.event);
    let told = told.filter(|event| !faults_only || event.is_fault());
    let begun = sight.look.begun;
    let mut rows = Vec::new();
    for event in told {
        let when = or_dash(begun, |begun| moment(event.wall - begun));
        let tone = match (event.is_mended(), event.is_fault()) {
            (true, _) => Tone::Good,
            (false, true) => Tone::Bad,
            (false, false) => Tone::Plain,
        };
        let mark = if tone == Tone::Plain { "·" } else { "●" };
        // Times are of one width until a run is ten hours old.
        let before = format!("{when:>7} ");
        let indent = before.len() + 2;
        let words = wrapped(&event.text, width.saturating_sub(indent).max(10));
        for (nth, words) in words.into_iter().enumerate() {
            rows.push(match nth {
                0 => Line::from(vec![
                    Span::styled(before.clone(), paint.quiet()),
                    Span::styled(format!("{mark} "), paint.tone(tone)),
                    words.into(),
                ]),
                _ => Line::from(" ".repeat(indent) + &words),
            });
        }
    }
    let title = if faults_only { "faults" } else { "events" };
    Lines {
        part: Part::Events,
        titles: Line::from(format!("{title}, newest first")),
        rows,
    }
}

/// A text in lines of a width at most, cut between words where that is possible.
pub(super) fn wrapped(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    let wide = |text: &str| Span::raw(text).width();
    for word in text.split_whitespace() {
        if !line.is_empty() && wide(&line) + 1 + wide(word) <= width {
            line.push(' ');
            line += word;
            continue;
        }
        if !line.is_empty() {
            lines.push(std::mem::take(&mut line));
        }
        // A word that is longer than a line.
        for letter in word.chars() {
            if wide(&line) + wide(letter.encode_utf8(&mut [0; 4])) > width {
                lines.push(std::mem::take(&mut line));
            }
            line.push(letter);
        }
    }
    lines.extend(Some(line).filter(|line| !line.is_empty()));
    lines
}

fn help(frame: &mut Frame<'_>, all: Rect) {
    let wide = KEYS.iter().map(|(key, _)| key.chars().count()).max();
    let wide = wide.unwrap_or(0);
    let line = |(key, does): &(&'static str, &str)| {
        let empty = " ".repeat(wide - key.chars().count());
        let does = format!("{empty}  {does}");
        Line::from(vec![Span::styled(*key, BOLD), does.into()])
    };
    let text: Vec<Line<'static>> = KEYS.iter().map(line).collect();
    let width = text.iter().map(Line::width).max().unwrap_or(0) as u16 + 4;
    let area = all.centered(
        Constraint::Length(width.min(all.width)),
        Constraint::Length((text.len() as u16 + 2).min(all.height)),
    );
    frame.render_widget(Clear, area);
    let block = Block::bordered().title(" keys ");
    frame.render_widget(Paragraph::new(text).block(block), area);
}
