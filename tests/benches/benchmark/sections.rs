//! What is measured, in order.

use std::process::{Command, Stdio};
use std::time::Duration;

use servers::{Database, Distance, Kind, Proxy, Server};

use crate::race::{Effort, Race, Stream, id, race, turn};
use crate::report::{Entry, Report, Trips};
use crate::ways::{self, Way, Ways};
use crate::{Databases, Options};

/// A part of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Section {
    /// Round trips, counted
    Trips,
    /// Fresh messages, with 1 and 8 workers
    Fresh,
    /// What the difference to the lines by hand is made of
    Parts,
    /// Messages that have been processed before, and one of them over and over
    Duplicates,
    /// Batches of 10, 100 and 1000
    Batches,
    /// A database that is a millisecond away, each way
    Distance,
    /// With many claims stored
    Stored,
    /// PostgreSQL's own client for benchmarks, with the same script
    Pgbench,
    /// Beside a purge of a million rows
    Purge,
    /// Bytes a claim
    Bytes,
    /// Instructions and allocations a message
    Counts,
    /// What the compiler takes
    CompileTime,
}

impl Section {
    /// Not part of the two minutes of `--quick`.
    pub(crate) const fn is_long(self) -> bool {
        matches!(self, Self::Parts | Self::Purge | Self::Bytes | Self::Counts | Self::CompileTime)
    }
}

const FRESH: [Way; 4] = [Way::ByHandPinging, Way::ByHand, Way::Pinging, Way::Attribute];
const DUPLICATES: [Way; 3] = [Way::ByHand, Way::Attribute, Way::Cached];
const BATCHES: [Way; 3] = [Way::ByHand, Way::ByHandPurgeable, Way::Attribute];
const WORKERS: u32 = 8;

/// A database for the benchmark, and the server that goes with it.
struct Place {
    server: Option<Server>,
}

impl Place {
    async fn start(kind: Kind) -> Result<Self, String> {
        let server = if kind == Kind::Sqlite { None } else { Some(Server::start_as_in_production(kind).await?) };
        Ok(Self { server })
    }

    async fn database(&self) -> Database {
        match &self.server {
            Some(server) => server.fresh_database().await,
            None => Kind::Sqlite.fresh_database().await,
        }
    }
}

pub(crate) async fn races(options: &Options, report: &mut Report) -> Result<(), String> {
    if options.wants_database(Databases::Postgres) {
        on::<ways::postgres::World>(options, report).await?;
    }
    if options.wants_database(Databases::Mariadb) {
        on::<ways::mariadb::World>(options, report).await?;
    }
    if options.wants_database(Databases::Sqlite) {
        on::<ways::sqlite::World>(options, report).await?;
    }
    Ok(())
}

async fn on<W: Ways>(options: &Options, report: &mut Report) -> Result<(), String> {
    let place = Place::start(W::KIND).await?;
    let version = match &place.server {
        Some(server) => server.version().await,
        None => servers::sqlite_version().await,
    };
    report.versions.push(version.map_err(|error| error.to_string())?);
    let effort = options.effort();
    let database = place.database().await;
    let world = W::connect(database.url(), WORKERS).await;
    let mut add = |section, workers, stream, race: Race| {
        eprintln!("{} {section:?} {workers} {stream:?}", W::KIND.name());
        report.entries.push(Entry { kind: W::KIND, section, workers, stream, race });
    };
    if options.wants(Section::Fresh) || options.wants(Section::Batches) {
        for workers in [1, WORKERS as usize] {
            let race = race(&world, Stream::Fresh, workers, &FRESH, effort).await;
            add(Section::Fresh, workers, Stream::Fresh, race);
        }
    }
    if options.wants(Section::Parts) {
        let mut ways = vec![Way::ByHand, Way::ByHandPurgeable];
        ways.extend(W::PARTS.iter().copied().map(Way::Part));
        ways.push(Way::Attribute);
        for workers in [1, WORKERS as usize] {
            add(Section::Parts, workers, Stream::Fresh, race(&world, Stream::Fresh, workers, &ways, effort).await);
        }
    }
    if options.wants(Section::Duplicates) {
        for (workers, stream) in
            [(1, Stream::Duplicates), (WORKERS as usize, Stream::Duplicates), (WORKERS as usize, Stream::Hot)]
        {
            add(Section::Duplicates, workers, stream, race(&world, stream, workers, &DUPLICATES, effort).await);
        }
    }
    if options.wants(Section::Batches) {
        for size in [10, 100, 1000] {
            let stream = Stream::Batches(size);
            add(Section::Batches, 1, stream, race(&world, stream, 1, &BATCHES, effort).await);
        }
    }
    if W::KIND == Kind::Postgres && options.wants(Section::Pgbench) {
        for workers in [1, WORKERS as usize] {
            if let Some(rates) = pgbench(&world, database.url(), workers, effort).await? {
                report.pgbench.push((workers, rates));
            }
        }
    }
    if W::KIND != Kind::Sqlite && options.wants(Section::Distance) {
        let distance = Distance::start(database.url(), Duration::from_millis(1)).await;
        // More connections than workers: a connection's way back into the pool is not in the way of the next message.
        let far = W::connect(distance.url(), WORKERS).await;
        let effort = Effort { rounds: effort.rounds.min(9), turn: effort.turn * 2 };
        let race = race(&far, Stream::Fresh, 1, &FRESH, effort).await;
        report.entries.push(Entry {
            kind: W::KIND,
            section: Section::Distance,
            workers: 1,
            stream: Stream::Fresh,
            race,
        });
    }
    if W::KIND != Kind::Sqlite && options.wants(Section::Trips) {
        report.trips.push(trips::<W>(&place.database().await).await);
    }
    if options.wants(Section::Stored) {
        stored::<W>(options, report, &place).await;
    }
    Ok(())
}

/// The same store with many claims in it, in turns with one that was empty before.
async fn stored<W: Ways>(options: &Options, report: &mut Report, place: &Place) {
    let (without, database) = (place.database().await, place.database().await);
    let empty = &W::connect(without.url(), WORKERS).await;
    let full = W::connect(database.url(), WORKERS).await;
    let count = options.stored();
    // Spread over all keys, so that new ones fall between them, and expiring one after the other.
    let stride = (u64::from(u32::MAX) / count).max(1);
    full.execute(match W::KIND {
        Kind::Postgres => format!(
            "INSERT INTO processed_messages (consumer, sender, key, expires_at)
             SELECT 'postgres.one', '', rpad(lpad(to_hex(n::bigint * {stride}), 8, '0'), 32, '0'), now() + n * interval '1 millisecond'
             FROM generate_series(1, {count}) AS n"
        ),
        Kind::Mariadb => format!(
            "INSERT INTO processed_messages (consumer, sender, `key`, expires_at)
             SELECT 'mariadb.one', '', RPAD(LPAD(LOWER(HEX(seq * {stride})), 8, '0'), 32, '0'),
                    UTC_TIMESTAMP(6) + INTERVAL seq * 1000 MICROSECOND
             FROM seq_1_to_{count}"
        ),
        Kind::Sqlite => format!(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count})
             INSERT INTO processed_messages (consumer, sender, key, expires_at)
             SELECT 'sqlite.one', '', printf('%08x', n * {stride}) || '000000000000000000000000',
                    CAST(unixepoch('subsec') * 1000 AS INTEGER) + 3600000 + n FROM numbers"
        ),
    })
    .await;
    if W::KIND == Kind::Postgres {
        full.execute("VACUUM (ANALYZE) processed_messages".to_owned()).await;
        full.execute("CHECKPOINT".to_owned()).await;
    }
    for workers in [1, WORKERS as usize] {
        let effort = options.effort();
        let mut ratios = Race::new(&[Way::ByHand, Way::Attribute]);
        let mut messages = 20 * workers;
        for world in [empty, &full] {
            turn(world, Stream::Fresh, workers, Way::Attribute, messages).await;
        }
        let rate = turn(&full, Stream::Fresh, workers, Way::Attribute, messages * 5).await;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
        {
            messages = messages.max((rate * effort.turn.as_secs_f64()) as usize);
        }
        for round in 0..effort.rounds {
            for step in 0..2 {
                let which = (round + step) % 2;
                let world = if which == 0 { empty } else { &full };
                ratios.add(which, turn(world, Stream::Fresh, workers, Way::Attribute, messages).await);
            }
        }
        report.stored.push((W::KIND, workers, count, ratios.ratio(Way::Attribute, Way::ByHand)));
    }
}

/// Awaited round trips of a message, with one connection that has its statements prepared.
async fn trips<W: Ways>(database: &Database) -> Trips {
    let proxy = Proxy::start(database.url()).await;
    let world = W::connect(proxy.url(), 1).await;
    let mut trips = Trips { kind: W::KIND, singles: Vec::new(), batch: Vec::new() };
    for way in [Way::ByHandPinging, Way::ByHand, Way::Pinging, Way::Attribute, Way::Cached] {
        for _ in 0..2 {
            world.single(way, &id()).await;
            world.idle().await;
        }
        let message = id();
        let (processed, fresh) = proxy.round_trips_of(world.single(way, &message)).await;
        assert!(processed, "{way:?}");
        world.idle().await;
        world.single(way, &message).await; // prepares what a duplicate needs
        world.idle().await;
        let (processed, duplicate) = proxy.round_trips_of(world.single(way, &message)).await;
        assert!(!processed, "{way:?}");
        world.idle().await;
        trips.singles.push((way, fresh, duplicate));
    }
    for way in [Way::ByHand, Way::Attribute] {
        for size in [10, 100, 1000] {
            let batches: Vec<Vec<String>> = (0..3).map(|_| (0..size).map(|_| id()).collect()).collect();
            for batch in &batches[1..] {
                world.batch(way, batch.clone()).await;
                world.idle().await;
            }
            let (count, waited) = proxy.round_trips_of(world.batch(way, batches[0].clone())).await;
            assert_eq!(count, size, "{way:?}");
            world.idle().await;
            trips.batch.push((way, size, waited));
        }
    }
    trips
}

/// Messages a second of pgbench with the same statements, by hand and by the attribute, in turns; nothing where it is
/// not installed.
async fn pgbench<W: Ways>(
    world: &W,
    url: &str,
    workers: usize,
    effort: Effort,
) -> Result<Option<[Vec<f64>; 3]>, String> {
    const SCRIPT: &str = "\\set id random(1, 9223372036854775807)
BEGIN;
INSERT INTO by_hand (consumer, id) VALUES ('pgbench', md5(:id::bigint::text)) ON CONFLICT DO NOTHING;
INSERT INTO effects (id, amount) VALUES (md5(:id::bigint::text), 1);
COMMIT;
";
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let script = folder.path().join("script.sql");
    std::fs::write(&script, SCRIPT).map_err(|error| error.to_string())?;
    let mut rates = [Vec::new(), Vec::new(), Vec::new()];
    let mut messages = 100 * workers;
    for _ in 0..(effort.rounds / 2).clamp(2, 7) {
        let run = Command::new("pgbench")
            .args(["--no-vacuum", "--protocol=prepared", "--jobs=2", "--time=1"])
            .arg(format!("--client={workers}"))
            .arg(format!("--file={}", script.display()))
            .arg(url)
            .stderr(Stdio::null())
            .output();
        let Ok(output) = run else { return Ok(None) };
        let output = String::from_utf8_lossy(&output.stdout).into_owned();
        let tps = output.lines().find_map(|line| line.strip_prefix("tps = ")?.split(' ').next()?.parse::<f64>().ok());
        rates[0].push(tps.ok_or_else(|| format!("pgbench says nothing of tps: {output}"))?);
        rates[1].push(turn(world, Stream::Fresh, workers, Way::ByHand, messages).await);
        rates[2].push(turn(world, Stream::Fresh, workers, Way::Attribute, messages).await);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a second's messages")]
        {
            messages = rates[1].last().map_or(messages, |rate| *rate as usize);
        }
    }
    Ok(Some(rates))
}

/// Benchmarks in programs of their own, whose output is part of the report, even of one that fails. Which have failed.
pub(crate) fn programs(options: &Options, report: &mut Report) -> Result<(), String> {
    const PROGRAMS: [(Section, &str); 4] = [
        (Section::Counts, "cargo test -q -p tests --test counts -- --nocapture"),
        (Section::CompileTime, "tests/benches/compile_time"),
        (Section::Bytes, "cargo bench -q -p tests --bench purge -- bytes"),
        (Section::Purge, "cargo bench -q -p tests --bench purge -- sqlite postgres mariadb"),
    ];
    let mut failed = Vec::new();
    for (section, command) in PROGRAMS.into_iter().filter(|(section, _)| options.wants(*section)) {
        eprintln!("{command}");
        let output = Command::new("sh")
            .args(["-c", command])
            .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("{command}: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        if !output.status.success() {
            failed.push(command);
        }
        report.programs.push((section, command, text));
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("{} failed", failed.join(" and "))) }
}
