//! A million old claims, purged by two processes with the default options while consumers work: do the counts add up,
//! is every live claim still there, and how long does a message take meanwhile?
//!
//! `cargo bench -p tests --bench purge` for all; `-- sqlite`, `-- postgres`, `-- mariadb` or `-- bytes` for one;
//! `--rows 100000` for fewer; `--batch 200 --pause 10` (milliseconds) for other options than the default ones.
//! `bytes` says what a claim costs on PostgreSQL with each kind of index for the purge. Compare the numbers of one
//! run: they are this machine's, and the servers' that the variables in `tests/servers/lib.rs` name.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use servers::Kind;
use sqlx::pool::PoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection};

const CONSUMERS: u64 = 4;
/// What a consumer does between two messages, so that the machine is not at its limit when idle.
const REST: Duration = Duration::from_millis(5);
const IDLE: Duration = Duration::from_secs(15);
const LIVE: u64 = 100_000;

/// What differs between the databases.
struct Dialect {
    kind: Kind,
    prepare: &'static str,
    /// Adds claims: `{count}` of them, `{expires}`.
    add: &'static str,
    old: &'static str,
    live: &'static str,
    /// How often the server has found a deadlock.
    deadlocks: Option<&'static str>,
}

const SQLITE: Dialect = Dialect {
    kind: Kind::Sqlite,
    prepare: "PRAGMA journal_mode = WAL",
    add: "WITH RECURSIVE numbers (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM numbers WHERE number < {count})
        INSERT INTO processed_messages (consumer, sender, key, expires_at)
        SELECT 'billing.grant-credit', '', lower(hex(randomblob(16))) || '-{tag}', {expires} FROM numbers",
    old: "CAST(unixepoch('subsec') * 1000 AS INTEGER) - 7200000 - {count} + number",
    live: "CAST(unixepoch('subsec') * 1000 AS INTEGER) + 3600000 + number",
    deadlocks: None,
};

const POSTGRES: Dialect = Dialect {
    kind: Kind::Postgres,
    prepare: "SELECT 1",
    add: "INSERT INTO processed_messages (consumer, sender, key, expires_at)
        SELECT 'billing.grant-credit', '', gen_random_uuid() || '-{tag}', {expires} FROM generate_series(1, {count}) AS number",
    old: "now() - interval '2 hours' - ({count} - number) * interval '1 millisecond'",
    live: "now() + interval '1 hour' + number * interval '1 millisecond'",
    deadlocks: Some("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"),
};

const MARIADB: Dialect = Dialect {
    kind: Kind::Mariadb,
    prepare: "SELECT 1",
    add: "INSERT INTO processed_messages (consumer, sender, `key`, expires_at)
        SELECT 'billing.grant-credit', '', CONCAT(UUID(), RAND(), '-{tag}'), {expires} FROM seq_1_to_{count}",
    old: "UTC_TIMESTAMP(6) - INTERVAL 2 HOUR - INTERVAL ({count} - seq) * 1000 MICROSECOND",
    live: "UTC_TIMESTAMP(6) + INTERVAL 1 HOUR + INTERVAL seq * 1000 MICROSECOND",
    deadlocks: Some(
        "SELECT CAST(variable_value AS SIGNED) FROM information_schema.global_status WHERE variable_name = 'Innodb_deadlocks'",
    ),
};

/// Latencies of one phase.
#[derive(Default)]
struct Latencies(Mutex<Vec<Duration>>);

impl Latencies {
    fn add(&self, latency: Duration) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(latency);
    }

    /// Messages, and the latencies of which half, and one in a hundred, were longer, and the longest.
    fn summary(&self) -> (usize, [Duration; 3]) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_unstable();
        let at = |part: usize| {
            all.get((all.len() * part / 1_000).min(all.len().saturating_sub(1))).copied().unwrap_or_default()
        };
        (all.len(), [at(500), at(990), at(1_000)])
    }
}

fn print(phase: &str, latencies: &Latencies) -> Duration {
    let (messages, [half, most, longest]) = latencies.summary();
    println!("  {phase:13} {messages:6} messages, p50 {half:8.2?}, p99 {most:8.2?}, longest {longest:8.2?}");
    most
}

macro_rules! measured {
    ($name:ident, $db:ident, $tx:ident, $consumer:literal) => {
        async fn $name(dialect: &Dialect, rows: u64, options: &[String]) {
            use idempotent_runtime::idempotent;

            #[idempotent(key = "{id}", consumer = $consumer)]
            async fn grant_credit(tx: &mut sqlx::$tx<'_>, id: &str) -> sqlx::Result<()> {
                tx.execute("INSERT INTO effects (id) VALUES (1)").await.map(drop)
            }

            let fresh = dialect.kind.fresh_database().await;
            let pool = PoolOptions::<sqlx::$db>::new().max_connections(8);
            let pool = pool.connect(fresh.url()).await.expect("the database");
            let number = async |sql: String| -> i64 {
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&pool).await.expect("a number")
            };
            pool.execute(dialect.prepare).await.expect("settings");
            idempotent_runtime::migrate(&pool).await.expect("the claim table");
            pool.execute("CREATE TABLE effects (id INTEGER NOT NULL)").await.expect("a table");
            for (tag, expires, count) in [("old", dialect.old, rows), ("live", dialect.live, LIVE)] {
                let add = dialect.add.replace("{expires}", expires).replace("{tag}", tag);
                pool.execute(AssertSqlSafe(add.replace("{count}", &count.to_string()))).await.expect("claims");
            }
            let deadlocks = async || match dialect.deadlocks {
                Some(sql) => number(sql.to_owned()).await,
                None => 0,
            };
            let deadlocks_before = deadlocks().await;
            println!("{}: {rows} old claims and {LIVE} live ones, {CONSUMERS} consumers", dialect.kind.name());

            let next = Arc::new(AtomicU64::new(0));
            let phase = async |end: Arc<AtomicBool>| {
                let latencies = Arc::new(Latencies::default());
                let mut consumers = tokio::task::JoinSet::new();
                for _ in 0..CONSUMERS {
                    let (pool, next, end, latencies) = (pool.clone(), next.clone(), end.clone(), latencies.clone());
                    consumers.spawn(async move {
                        while !end.load(Ordering::Relaxed) {
                            let id = format!("evt_{}", next.fetch_add(1, Ordering::Relaxed));
                            let start = Instant::now();
                            let outcome = grant_credit(&pool, &id).await.expect("no error");
                            latencies.add(start.elapsed());
                            assert!(outcome.is_processed());
                            tokio::time::sleep(REST).await;
                        }
                    });
                }
                while let Some(consumer) = consumers.join_next().await {
                    consumer.expect("no consumer panics");
                }
                latencies
            };
            let idle = async || {
                let end = Arc::new(AtomicBool::new(false));
                let (latencies, ()) = tokio::join!(phase(Arc::clone(&end)), async {
                    tokio::time::sleep(IDLE).await;
                    end.store(true, Ordering::Relaxed);
                });
                latencies
            };

            drop(idle().await); // fills caches
            let before = print("idle before", &*idle().await);
            let start = Instant::now();
            let purges: Vec<_> = (0..2)
                .map(|_| {
                    let mut worker = Command::new(env!("CARGO_BIN_EXE_worker"));
                    worker.args([fresh.url(), "purge"]).args(options).stdout(Stdio::piped()).spawn().expect("a worker")
                })
                .collect();
            let end = Arc::new(AtomicBool::new(false));
            let ended = Arc::clone(&end);
            let counts = tokio::task::spawn_blocking(move || {
                let counts: Vec<u64> = purges
                    .into_iter()
                    .map(|purge| {
                        let output = purge.wait_with_output().expect("a worker's output").stdout;
                        let output = String::from_utf8(output).expect("text");
                        output.trim().strip_prefix("deleted ").and_then(|count| count.parse().ok()).expect("a count")
                    })
                    .collect();
                ended.store(true, Ordering::Relaxed);
                (counts, start.elapsed())
            });
            let during = print("while purging", &*phase(end).await);
            let (counts, time) = counts.await.expect("the workers");
            let after = print("idle after", &*idle().await);
            println!("  purged {counts:?} in {time:.1?}; p99 is {:.2} times that of idle", {
                during.as_secs_f64() * 2.0 / (before + after).as_secs_f64()
            });

            let key = if dialect.kind == Kind::Mariadb { "`key`" } else { "key" };
            let claims = async |pattern: &str| {
                number(format!("SELECT count(*) FROM processed_messages WHERE {key} LIKE '{pattern}'")).await
            };
            let processed = i64::try_from(next.load(Ordering::Relaxed)).expect("a count");
            assert_eq!(counts.iter().sum::<u64>(), rows, "the counts add up");
            assert_eq!(claims("%-old").await, 0);
            assert_eq!(claims("%-live").await, i64::try_from(LIVE).expect("a count"), "no live claim is gone");
            assert_eq!(claims("evt%").await, processed, "no new claim is gone");
            assert_eq!(number("SELECT count(*) FROM effects".to_owned()).await, processed);
            println!("  counts add up, every live claim is there, deadlocks: {}", deadlocks().await - deadlocks_before);
            pool.close().await;
        }
    };
}

measured!(sqlite, Sqlite, SqliteTransaction, "bench.sqlite");
measured!(postgres, Postgres, PgTransaction, "bench.postgres");
measured!(mariadb, MySql, MySqlTransaction, "bench.mariadb");

/// Bytes per claim on PostgreSQL: 240,000 claims as they come, from eight sessions, with a UUID as the key.
async fn bytes() {
    println!("PostgreSQL, bytes per claim with a UUID as the key:");
    for (name, index) in [
        ("none", "SELECT 1"),
        ("BRIN", "CREATE INDEX ON processed_messages USING brin (expires_at)"),
        ("B-tree", "CREATE INDEX ON processed_messages (expires_at)"),
    ] {
        let fresh = Kind::Postgres.fresh_database().await;
        let pool =
            PoolOptions::<sqlx::Postgres>::new().max_connections(8).connect(fresh.url()).await.expect("PostgreSQL");
        idempotent_runtime::migrate(&pool).await.expect("the claim table");
        pool.execute("DROP INDEX processed_messages_expires_at_idx").await.expect("the index of the migration");
        pool.execute(index).await.expect("an index");
        let mut sessions = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let url = fresh.url().to_owned();
            sessions.spawn(async move {
                let mut connection = PgConnection::connect(&url).await.expect("PostgreSQL");
                for _ in 0..30_000 {
                    let claim = "INSERT INTO processed_messages (consumer, sender, key, expires_at) VALUES
                        ('billing.grant-credit', '', gen_random_uuid(), clock_timestamp() + interval '7 days')";
                    sqlx::query(claim).execute(&mut connection).await.expect("a claim");
                }
            });
        }
        sessions.join_all().await;
        let size = "SELECT (pg_table_size('processed_messages') + pg_indexes_size('processed_messages'))::float8 / count(*) FROM processed_messages";
        let size: f64 = sqlx::query_scalar(size).fetch_one(&pool).await.expect("a size");
        println!("  {size:5.1} with {name}");
        pool.close().await;
    }
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let (mut which, mut rows) = (Vec::new(), 1_000_000);
    let mut options = vec!["default".to_owned(), "25".to_owned()];
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--rows" => rows = arguments.next().and_then(|rows| rows.parse().ok()).expect("--rows NUMBER"),
            "--batch" => options[0] = arguments.next().expect("--batch NUMBER"),
            "--pause" => options[1] = arguments.next().expect("--pause MILLISECONDS"),
            name => which.push(name.to_owned()),
        }
    }
    let wanted = |name: &str| which.is_empty() || which.iter().any(|one| one == name);
    if wanted("bytes") {
        bytes().await;
    }
    if wanted("sqlite") {
        sqlite(&SQLITE, rows, &options).await;
    }
    if wanted("postgres") {
        postgres(&POSTGRES, rows, &options).await;
    }
    if wanted("mariadb") {
        mariadb(&MARIADB, rows, &options).await;
    }
}
