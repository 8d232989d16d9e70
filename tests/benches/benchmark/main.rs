//! The attribute against the lines that people write by hand: `cargo bench -p tests --bench benchmark`, which writes
//! BENCHMARKS.md and its plots; `-- --quick` takes two minutes, prints the same and writes nothing.
//!
//! Everything is a ratio or a count from one run, in which the ways take turns. The servers are private ones that write
//! to the disk as in production.

mod goals;
mod parts;
mod plots;
mod race;
mod report;
mod sections;
mod ways;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Parser;

use race::Effort;
use report::Report;
use sections::Section;

/// Measures the attribute against the same handler by hand, and writes BENCHMARKS.md.
#[derive(Debug, Parser)]
#[command(name = "cargo bench -p tests --bench benchmark --", bin_name = "cargo bench -p tests --bench benchmark --")]
struct Options {
    /// Short rounds of the races against the lines by hand, a hundred thousand stored claims in place of ten million: two
    /// minutes once it is built
    #[arg(long)]
    quick: bool,
    /// Only these sections; then nothing is written
    #[arg(long, value_enum, value_delimiter = ',')]
    section: Vec<Section>,
    /// Only these databases; then nothing is written
    #[arg(long, value_enum, value_delimiter = ',')]
    database: Vec<Databases>,
    /// How often each way has its turn
    #[arg(long)]
    rounds: Option<usize>,
    /// How long a turn is, in milliseconds
    #[arg(long)]
    turn: Option<u64>,
    /// How many claims are stored for the section `stored`
    #[arg(long)]
    stored: Option<u64>,
    /// Write BENCHMARKS.md and the plots into this folder, whatever was measured
    #[arg(long)]
    output: Option<PathBuf>,
    /// Cargo passes this
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Databases {
    Postgres,
    Mariadb,
    Sqlite,
}

impl Options {
    fn effort(&self) -> Effort {
        let (rounds, turn) = if self.quick { (5, 80) } else { (11, 300) };
        Effort { rounds: self.rounds.unwrap_or(rounds).max(1), turn: Duration::from_millis(self.turn.unwrap_or(turn)) }
    }

    fn stored(&self) -> u64 {
        self.stored.unwrap_or(if self.quick { 100_000 } else { 10_000_000 }).max(1)
    }

    fn wants(&self, section: Section) -> bool {
        if self.section.is_empty() { !(self.quick && section.is_long()) } else { self.section.contains(&section) }
    }

    fn wants_database(&self, database: Databases) -> bool {
        self.database.is_empty() || self.database.contains(&database)
    }

    /// Where the report goes.
    fn output(&self) -> Option<PathBuf> {
        let here = || concat!(env!("CARGO_MANIFEST_DIR"), "/..").into();
        self.output.clone().or_else(|| self.is_whole().then(here))
    }

    /// Whether everything is measured, at length.
    fn is_whole(&self) -> bool {
        !self.quick && self.section.is_empty() && self.database.is_empty()
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    let start = Instant::now();
    let mut report = Report::default();
    // Two threads: the reference machine has two cores, and the servers share them.
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(sections::races(&options, &mut report))?;
    let programs = sections::programs(&options, &mut report);
    report.took = start.elapsed();
    let text = report.to_markdown(&options);
    println!("{text}");
    if let Some(folder) = options.output() {
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("BENCHMARKS.md"), text)?;
        plots::draw(&report, &folder.join("tests/benches/plots"))?;
        eprintln!("Written to {}", folder.join("BENCHMARKS.md").display());
    }
    Ok(programs?)
}
