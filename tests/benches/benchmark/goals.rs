//! What the benchmark is to show, and whether it does.

use std::fmt::Write as _;

use servers::Kind;

use crate::race::Stream;
use crate::report::Report;
use crate::sections::Section;
use crate::ways::Way;

struct Goal {
    what: String,
    at_least: f64,
    value: f64,
}

/// The table of the goals that this run has a value for.
pub(crate) fn write(text: &mut String, report: &Report) -> std::fmt::Result {
    let mut goals = Vec::new();
    for kind in [Kind::Postgres, Kind::Mariadb, Kind::Sqlite] {
        of(kind, report, &mut goals);
    }
    if goals.is_empty() && report.trips.is_empty() {
        return Ok(());
    }
    writeln!(text, "## Goals\n\n| | goal | value | |\n|---|---|---|---|")?;
    for trips in &report.trips {
        let of = |way| {
            trips.singles.iter().find(|(one, ..)| *one == way).map_or((0, 0), |(_, fresh, again)| (*fresh, *again))
        };
        let kind = trips.kind.name();
        let ((fresh, duplicate), (_, cached)) = (of(Way::Attribute), of(Way::Cached));
        for (what, most, value) in [
            ("fresh, verified", 4, fresh),
            ("fresh, verified, in the end", 3, fresh),
            ("duplicate", 2, duplicate),
            ("cached duplicate", 0, cached),
        ] {
            let reached = if value <= most { "reached" } else { "**not reached**" };
            writeln!(text, "| {kind}, awaited round trips, {what} | {most} | {value} | {reached} |")?;
        }
    }
    for Goal { what, at_least, value } in &goals {
        // As it is printed.
        let reached = if (value * 100.0).round() >= (at_least * 100.0).round() { "reached" } else { "**not reached**" };
        writeln!(text, "| {what} | ≥ {at_least} | {value:.2} | {reached} |")?;
    }
    writeln!(text)
}

fn of(kind: Kind, report: &Report, goals: &mut Vec<Goal>) {
    let name = kind.name();
    let mut add = |what: String, at_least, value| goals.push(Goal { what: format!("{name}, {what}"), at_least, value });
    for (workers, pinging, off) in [(1, 1.0, 0.95), (8, 0.95, 0.85)] {
        if let Some(race) = report.race(kind, Section::Fresh, workers, Stream::Fresh) {
            let workers = crate::report::what(Stream::Fresh, workers);
            add(
                format!("fresh, {workers}, × by hand with the pool's defaults"),
                pinging,
                race.ratio(Way::Attribute, Way::ByHandPinging).median,
            );
            add(
                "the same, × by hand with the ping off".to_owned(),
                off,
                race.ratio(Way::Attribute, Way::ByHand).median,
            );
        }
    }
    if let Some(race) = report.race(kind, Section::Distance, 1, Stream::Fresh) {
        let trips = report.trips.iter().find(|trips| trips.kind == kind);
        let three = trips
            .and_then(|trips| trips.singles.iter().find(|(way, ..)| *way == Way::Attribute))
            .is_some_and(|(_, fresh, _)| *fresh <= 3);
        let ratio = race.ratio(Way::Attribute, Way::ByHand).median;
        add("1 ms away each way, × by hand with the ping off".to_owned(), if three { 1.15 } else { 1.0 }, ratio);
    }
    let single = report.race(kind, Section::Fresh, 1, Stream::Fresh);
    if let (Some(single), Some(batch)) = (single, report.race(kind, Section::Batches, 1, Stream::Batches(100))) {
        let at_least = if kind == Kind::Postgres { 20.0 } else { 10.0 };
        let times = batch.rate(Way::Attribute).median / single.rate(Way::Attribute).median;
        add("batch of 100, × one by one".to_owned(), at_least, times);
        add("batch of 100, × by hand".to_owned(), 0.95, batch.ratio(Way::Attribute, Way::ByHand).median);
        add(
            "batch of 100, × by hand over a table that can be purged".to_owned(),
            0.95,
            batch.ratio(Way::Attribute, Way::ByHandPurgeable).median,
        );
    }
    for (_, workers, count, ratio) in report.stored.iter().filter(|(of, ..)| *of == kind) {
        let workers = crate::report::what(Stream::Fresh, *workers);
        add(format!("{count} claims stored, {workers}, × an empty table"), 0.9, ratio.median);
    }
}
