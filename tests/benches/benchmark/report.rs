//! BENCHMARKS.md.

use std::fmt::Write as _;
use std::time::Duration;

use servers::Kind;

use crate::race::{Race, Spread, Stream};
use crate::sections::Section;
use crate::ways::Way;
use crate::{Options, goals};

/// Everything that was measured.
#[derive(Default)]
pub(crate) struct Report {
    pub(crate) versions: Vec<String>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) trips: Vec<Trips>,
    /// Workers, and the rates of pgbench, by hand and by the attribute.
    pub(crate) pgbench: Vec<(usize, [Vec<f64>; 3])>,
    /// Workers, claims stored, and the ratio of the full table to the empty one.
    pub(crate) stored: Vec<(Kind, usize, u64, Spread)>,
    /// The command and its output.
    pub(crate) programs: Vec<(Section, &'static str, String)>,
    pub(crate) took: Duration,
}

pub(crate) struct Entry {
    pub(crate) kind: Kind,
    pub(crate) section: Section,
    pub(crate) workers: usize,
    pub(crate) stream: Stream,
    pub(crate) race: Race,
}

pub(crate) struct Trips {
    pub(crate) kind: Kind,
    /// Of a fresh message and of a duplicate.
    pub(crate) singles: Vec<(Way, usize, usize)>,
    /// By size.
    pub(crate) batch: Vec<(Way, usize, usize)>,
}

impl Report {
    pub(crate) fn race(&self, kind: Kind, section: Section, workers: usize, stream: Stream) -> Option<&Race> {
        let entry = self
            .entries
            .iter()
            .find(|entry| (entry.kind, entry.section, entry.workers, entry.stream) == (kind, section, workers, stream));
        entry.map(|entry| &entry.race)
    }

    pub(crate) fn to_markdown(&self, options: &Options) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text, options);
        text
    }

    fn write(&self, text: &mut String, options: &Options) -> std::fmt::Result {
        let effort = options.effort();
        let minutes = self.took.as_secs().div_ceil(60);
        let what = if options.is_whole() {
            format!("wrote this file and its plots in {minutes} minutes")
        } else {
            format!("took {minutes} minutes: a part of it, or short rounds, which show no goals")
        };
        writeln!(
            text,
            "# Benchmarks\n\n\
             The attribute against the lines that people write by hand, with sqlx, in one process and one run, taking turns:\n\n\
             ```sh\n\
             cargo bench -p tests --bench benchmark             # writes this file and its plots\n\
             cargo bench -p tests --bench benchmark -- --quick  # prints the races from short rounds, in two minutes once it is built\n\
             ```\n\n\
             Figures are ratios and counts; what is measured in seconds differs from machine to machine. This run {what}. {}; {}; private \
             servers with their defaults for durability (each commit is on the disk), SQLite in WAL mode with \
             `synchronous = NORMAL`; client and server share the cores, and all data fits into memory. Of each way {} rounds of {} ms, \
             fewer and longer ones where the database is far away, and at most 2000 messages where duplicates have to be made \
             first. A ratio is taken round by round; the table has the median and between which values the middle half of \
             the rounds is, so it is not the quotient of the medians beside it. Where two ways differ by less than 0.05, take them for \
             equal.\n\n\
             By hand is `pool.begin`, `INSERT … ON CONFLICT DO NOTHING` (`INSERT IGNORE` on MariaDB), the effect, `commit`: \
             without verification, without an expiry or a fingerprint, and without an index for a purge, unless it is called purgeable \
             (`tests/benches/benchmark/ways.rs`). One statement that both claims and has the effect would be faster still, where the effect is one \
             statement.\n",
            machine(),
            self.versions.join(", "),
            effort.rounds,
            effort.turn.as_millis(),
        )?;
        if !options.quick {
            goals::write(text, self)?;
        }
        self.write_trips(text)?;
        self.write_races(text)?;
        self.write_parts(text)?;
        self.write_pgbench(text)?;
        for (section, command, output) in &self.programs {
            writeln!(text, "## {}\n\n```sh\n{command}\n```\n", section.title())?;
            // What the test harness says around a table.
            let lines: Vec<&str> = output.lines().filter(|line| !is_harness(line)).collect();
            let output = lines.join("\n");
            if output.contains("|---") {
                writeln!(text, "{}\n", output.trim())?;
            } else {
                writeln!(text, "```text\n{}\n```\n", output.trim_end())?;
            }
        }
        if options.is_whole() { write!(text, "{}", include_str!("limits.md")) } else { Ok(()) }
    }

    fn write_trips(&self, text: &mut String) -> std::fmt::Result {
        if self.trips.is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "## {}\n\nA proxy withholds the replies until the client is stuck; each time counts as a round trip.\n",
            Section::Trips.title()
        )?;
        writeln!(text, "| | | fresh | duplicate |\n|---|---|---|---|")?;
        for Trips { kind, singles, .. } in &self.trips {
            for (way, fresh, duplicate) in singles {
                writeln!(text, "| {} | {} | {fresh} | {duplicate} |", kind.name(), way.name())?;
            }
        }
        writeln!(text, "\n| | | batch of 10 | of 100 | of 1000 |\n|---|---|---|---|---|")?;
        for Trips { kind, batch, .. } in &self.trips {
            for way in [Way::ByHand, Way::Attribute] {
                let cells: Vec<String> =
                    batch.iter().filter(|(of, ..)| *of == way).map(|(.., waited)| waited.to_string()).collect();
                writeln!(text, "| {} | {} | {} |", kind.name(), way.name(), cells.join(" | "))?;
            }
        }
        writeln!(text)
    }

    fn write_races(&self, text: &mut String) -> std::fmt::Result {
        for section in [Section::Fresh, Section::Duplicates, Section::Batches, Section::Distance] {
            let entries: Vec<&Entry> = self.entries.iter().filter(|entry| entry.section == section).collect();
            if entries.is_empty() {
                continue;
            }
            writeln!(text, "## {}\n", section.title())?;
            if let Some(plot) = section.plot() {
                writeln!(text, "![{}](tests/benches/plots/{plot}.svg)\n", section.title())?;
            }
            writeln!(
                text,
                "| | | messages/s | × by hand, ping off | middle half of the rounds |\n|---|---|---|---|---|"
            )?;
            for Entry { kind, workers, stream, race, .. } in entries {
                for way in race.ways() {
                    let Spread { low, median, high } = race.ratio(*way, Way::ByHand);
                    writeln!(
                        text,
                        "| {}, {} | {} | {:.0} | {median:.2} | {low:.2} to {high:.2} |",
                        kind.name(),
                        what(*stream, *workers),
                        way.name(),
                        race.rate(*way).median,
                    )?;
                }
            }
            writeln!(text)?;
        }
        if !self.stored.is_empty() {
            writeln!(
                text,
                "## {}\n\n| | claims stored | × a table that was empty before | middle half of the rounds |\n|---|---|---|---|",
                Section::Stored.title()
            )?;
            for (kind, workers, count, Spread { low, median, high }) in &self.stored {
                let what = what(Stream::Fresh, *workers);
                writeln!(text, "| {}, {what} | {count} | {median:.2} | {low:.2} to {high:.2} |", kind.name())?;
            }
            writeln!(text)?;
        }
        Ok(())
    }

    fn write_parts(&self, text: &mut String) -> std::fmt::Result {
        let entries: Vec<&Entry> = self.entries.iter().filter(|entry| entry.section == Section::Parts).collect();
        let Some(widest) = entries.iter().map(|entry| entry.workers).max() else { return Ok(()) };
        writeln!(
            text,
            "## {}\n\nThe lines by hand, and in each row what the row above does and one thing more, through sqlx alone, until \
             they are the attribute's statements (`tests/benches/benchmark/parts.rs`). Fresh messages, ping off; × the first row.\n",
            Section::Parts.title()
        )?;
        for one in entries.iter().filter(|entry| entry.workers == 1) {
            let Some(many) = entries.iter().find(|entry| (entry.kind, entry.workers) == (one.kind, widest)) else {
                continue;
            };
            writeln!(text, "| {} | 1 worker | | {widest} workers | |\n|---|---|---|---|---|", one.kind.name())?;
            for way in one.race.ways() {
                let name = if *way == Way::ByHandPurgeable { "an index on the time, for a purge" } else { way.name() };
                let plus = if matches!(way, Way::ByHand | Way::Attribute) { "" } else { "+ " };
                write!(text, "| {plus}{name} ")?;
                for entry in [one, many] {
                    let Spread { low, median, high } = entry.race.ratio(*way, Way::ByHand);
                    write!(text, "| {median:.2} | {low:.2} to {high:.2} ")?;
                }
                writeln!(text, "|")?;
            }
            writeln!(text)?;
        }
        Ok(())
    }

    fn write_pgbench(&self, text: &mut String) -> std::fmt::Result {
        if self.pgbench.is_empty() {
            return Ok(());
        }
        writeln!(
            text,
            "## {}\n\nWhether the lines by hand are a fair rival: PostgreSQL's own client, with their statements, prepared as well. \
             Its ids are made by the server, with md5.\n\n\
             | | pgbench, messages/s | by hand × pgbench | idempotent × pgbench |\n|---|---|---|---|",
            Section::Pgbench.title()
        )?;
        for (workers, [pgbench, by_hand, attribute]) in &self.pgbench {
            let median = |mut values: Vec<f64>| {
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let ratio = |rates: &[f64]| median(rates.iter().zip(pgbench).skip(1).map(|(rate, of)| rate / of).collect());
            let what = what(Stream::Fresh, *workers);
            writeln!(
                text,
                "| {what} | {:.0} | {:.2} | {:.2} |",
                median(pgbench.clone()),
                ratio(by_hand),
                ratio(attribute)
            )?;
        }
        writeln!(text)
    }
}

impl Section {
    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Trips => "Awaited round trips",
            Self::Fresh => "Fresh messages",
            Self::Parts => "What the difference is made of",
            Self::Duplicates => "Duplicates",
            Self::Batches => "Batches",
            Self::Distance => "A database 1 ms away, each way",
            Self::Stored => "With many claims stored",
            Self::Pgbench => "PostgreSQL against pgbench",
            Self::Purge => "Beside a purge",
            Self::Bytes => "Bytes a claim, PostgreSQL",
            Self::Counts => "Instructions and allocations a message",
            Self::CompileTime => "Compile time",
        }
    }

    /// The name of its plot.
    pub(crate) const fn plot(self) -> Option<&'static str> {
        match self {
            Self::Fresh => Some("fresh"),
            Self::Duplicates => Some("duplicates"),
            Self::Batches => Some("batches"),
            Self::Distance => Some("distance"),
            _ => None,
        }
    }
}

pub(crate) fn what(stream: Stream, workers: usize) -> String {
    let workers = if workers == 1 { "1 worker".to_owned() } else { format!("{workers} workers") };
    match stream {
        Stream::Fresh | Stream::Duplicates => workers,
        Stream::Hot => format!("{workers}, one id"),
        Stream::Batches(size) => format!("batches of {size}"),
    }
}

fn is_harness(line: &str) -> bool {
    ["running ", "test ", "test result", "."].iter().any(|start| line.starts_with(start))
}

fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model =
        cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map_or("", |(_, name)| name);
    format!("{cores} cores of {model}")
}
