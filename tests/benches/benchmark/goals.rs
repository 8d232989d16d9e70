//! What the benchmark is to show, and whether it does.

use std::fmt::Write as _;

use servers::Kind;

use crate::race::{Spread, Stream};
use crate::report::{Report, what};
use crate::sections::Section;
use crate::ways::Way;

const KINDS: [Kind; 3] = [Kind::Postgres, Kind::Mariadb, Kind::Sqlite];

/// What a value is compared with.
#[derive(Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bound {
    fn verdict(self, Spread { low, median, high }: Spread) -> &'static str {
        // As they are printed.
        let [low, median, high] = [low, median, high].map(|value| (value * 100.0).round());
        let (reached, surely) = match self {
            Self::AtLeast(bound) => (median >= (bound * 100.0).round(), low >= (bound * 100.0).round()),
            Self::AtMost(bound) => (median <= (bound * 100.0).round(), high <= (bound * 100.0).round()),
        };
        match (reached, surely) {
            (_, true) => "reached",
            (true, false) => "reached, within the noise",
            (false, _) => "**not reached**",
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "≥ {bound}"),
            Self::AtMost(bound) => write!(f, "≤ {bound}"),
        }
    }
}

#[derive(Default)]
struct Goals(String);

impl Goals {
    fn add(&mut self, what: &str, bound: Bound, value: Spread) {
        let Spread { low, median, high } = value;
        let spread = if low < high { format!("{low:.2} to {high:.2}") } else { String::new() };
        self.row(what, bound, &format!("{median:.2}"), &spread, value);
    }

    fn row(&mut self, what: &str, bound: Bound, shown: &str, spread: &str, value: Spread) {
        let _ = writeln!(self.0, "| {what} | {bound} | {shown} | {spread} | {} |", bound.verdict(value));
    }

    /// Of a value that is a whole number.
    fn count(&mut self, what: &str, most: usize, value: usize) {
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let [bound, of] = [most, value].map(|count| count as f64);
        self.row(what, Bound::AtMost(bound), &value.to_string(), "", Spread { low: of, median: of, high: of });
    }

    /// Of a value that was measured once.
    fn one(&mut self, what: &str, bound: Bound, value: f64) {
        self.add(what, bound, Spread { low: value, median: value, high: value });
    }
}

/// The table of the goals that this run has a value for.
pub(crate) fn write(text: &mut String, report: &Report) -> std::fmt::Result {
    let mut goals = Goals::default();
    for trips in &report.trips {
        let of = |way| {
            trips.singles.iter().find(|(one, ..)| *one == way).map_or((0, 0), |(_, fresh, again)| (*fresh, *again))
        };
        let kind = trips.kind.name();
        let ((fresh, duplicate), (_, cached)) = (of(Way::Attribute), of(Way::Cached));
        for (what, most, value) in [
            ("fresh, verified", 4, fresh),
            ("fresh, verified: the long-term goal", 3, fresh),
            ("duplicate", 2, duplicate),
            ("cached duplicate", 0, cached),
        ] {
            goals.count(&format!("{kind}, awaited round trips, {what}"), most, value);
        }
    }
    for kind in KINDS {
        races(kind, report, &mut goals);
    }
    for (section, _, output) in &report.programs {
        program(*section, output, &mut goals);
    }
    if goals.0.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "## Goals\n\n\"Ping off\" is a pool with `test_before_acquire(false)`: a handler does not need the ping, since it finds dead connections \
         itself; the lines by hand need it, so its goals are compared with both.\n\n\
         | | goal | value | middle half of the rounds | |\n|---|---|---|---|---|\n{}",
        goals.0
    )
}

fn races(kind: Kind, report: &Report, goals: &mut Goals) {
    let name = kind.name();
    let mut add =
        |what: String, at_least, value| goals.add(&format!("{name}, {what}"), Bound::AtLeast(at_least), value);
    for (workers, pinging, off) in [(1, 1.0, 0.95), (8, 0.95, 0.85)] {
        if let Some(race) = report.race(kind, Section::Fresh, workers, Stream::Fresh) {
            let workers = what(Stream::Fresh, workers);
            for (by_hand, goal) in [(Way::ByHandPinging, pinging), (Way::ByHand, off)] {
                let goal_of = format!("fresh, {workers}: ping off × {}", by_hand.name());
                add(goal_of, goal, race.ratio(Way::Attribute, by_hand));
            }
        }
    }
    if let Some(race) = report.race(kind, Section::Distance, 1, Stream::Fresh) {
        let trips = report.trips.iter().find(|trips| trips.kind == kind);
        let three = trips
            .and_then(|trips| trips.singles.iter().find(|(way, ..)| *way == Way::Attribute))
            .is_some_and(|(_, fresh, _)| *fresh <= 3);
        let (trips, goal) = if three { ("three", 1.15) } else { ("four", 1.0) };
        let goal_of = format!("1 ms away each way, with {trips} round trips: × by hand, ping off");
        add(goal_of, goal, race.ratio(Way::Attribute, Way::ByHand));
    }
    let single = report.race(kind, Section::Fresh, 1, Stream::Fresh);
    if let (Some(single), Some(batch)) = (single, report.race(kind, Section::Batches, 1, Stream::Batches(100))) {
        let at_least = if kind == Kind::Postgres { 20.0 } else { 10.0 };
        let times = batch.rate(Way::Attribute).median / single.rate(Way::Attribute).median;
        add("batch of 100: × one by one".to_owned(), at_least, Spread { low: times, median: times, high: times });
        for by_hand in [Way::ByHand, Way::ByHandPurgeable] {
            add(format!("batch of 100: × {}", by_hand.name()), 0.95, batch.ratio(Way::Attribute, by_hand));
        }
    }
    for (_, workers, count, ratio) in report.stored.iter().filter(|(of, ..)| *of == kind) {
        let workers = what(Stream::Fresh, *workers);
        add(format!("{count} claims stored, {workers}: × a table that was empty before"), 0.9, *ratio);
    }
}

/// The goals that a benchmark of its own has values for, from the lines that it prints.
fn program(section: Section, output: &str, goals: &mut Goals) {
    let number = |text: &str| text.trim().trim_start_matches('+').trim_end_matches(" s").parse::<f64>().ok();
    let mut database = "";
    for line in output.lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        match (section, cells.as_slice()) {
            (Section::Counts, ["", name, _, _, ratio, _, _, by_hand, by_macro, ..]) => {
                let (Some(ratio), Some(by_hand), Some(by_macro)) = (number(ratio), number(by_hand), number(by_macro))
                else {
                    continue;
                };
                goals.one(&format!("{name}: instructions outside the database, × by hand"), Bound::AtMost(1.05), ratio);
                let more = by_macro - by_hand;
                goals.one(&format!("{name}: allocations outside sqlx, more than by hand"), Bound::AtMost(3.0), more);
            }
            (Section::CompileTime, ["", name, _, _, ratio, ..]) => {
                let bound = if name.contains("check") {
                    1.25
                } else if name.contains("clean") {
                    10.0
                } else {
                    continue;
                };
                if let Some(ratio) = number(ratio) {
                    let what = if bound > 2.0 { "CPU seconds more" } else { "× by hand" };
                    goals.one(&format!("{name}: {what}"), Bound::AtMost(bound), ratio);
                }
            }
            (Section::Bytes, _) => {
                if let Some(bytes) = line.strip_suffix(" with B-tree").and_then(number) {
                    goals.one("PostgreSQL: bytes a claim, all indexes, UUID key", Bound::AtMost(240.0), bytes);
                }
            }
            (Section::Purge, _) => {
                if let Some((name, _)) = line.split_once(": ").filter(|_| !line.starts_with(' ')) {
                    database = name;
                } else if let Some((_, rest)) = line.split_once("; p99 is ")
                    && let Some(times) = rest.split(' ').next().and_then(number)
                {
                    goals.one(&format!("{database}: p99 beside a purge, × idle"), Bound::AtMost(2.0), times);
                }
            }
            _ => {}
        }
    }
}
