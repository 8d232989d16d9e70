//! A process of its own that consumes messages, for the tests that kill it.
//!
//! `worker URL deliver ID TIMES`: delivers one message many times at once and prints `processed N, duplicate N, failed N`.
//! `worker URL crash-inside ID`: dies inside the handler, after the effect. `worker URL crash-after ID`: dies after the
//! commit, before it could acknowledge. `worker URL stream PARTITION END`: applies the offsets of a stream from its stored
//! position up to END, which it prints as it goes. `worker URL purge SIZE PAUSE`: purges in batches of that size with
//! so many milliseconds between them, or with the default options for `purge default`, and prints `deleted N`.
//! `worker URL janitor SIZE`: purges every half second, until it is killed.

use std::process::abort;

use tokio::task::JoinSet;

macro_rules! consumer {
    ($module:ident, $db:ident, $tx:ident, $consumer:literal, $stream:literal) => {
        mod $module {
            use std::time::Duration;

            use idempotent_runtime::{ClaimStore, Janitor, Outcome, PurgeOptions, idempotent};
            use sqlx::{AssertSqlSafe, Executor as _, Pool, pool::PoolOptions, $db, $tx};

            #[idempotent(key = "{id}", consumer = $consumer)]
            async fn record(tx: &mut $tx<'_>, id: &str, crash: bool) -> sqlx::Result<()> {
                tx.execute(AssertSqlSafe(format!("INSERT INTO effects (id) VALUES ('{id}')"))).await?;
                if crash {
                    super::abort();
                }
                Ok(())
            }

            #[idempotent(sequence(entity = "{partition}", number = "offset"), consumer = $stream)]
            async fn apply(tx: &mut $tx<'_>, partition: &str, offset: i64) -> sqlx::Result<()> {
                tx.execute(AssertSqlSafe(format!("INSERT INTO effects (id) VALUES ('{partition}-{offset}')")))
                    .await
                    .map(drop)
            }

            pub(super) async fn stream(pool: Pool<$db>, partition: &str, end: i64) {
                let store = ClaimStore::new(pool.clone());
                let applied = store.position($stream, "", partition).await.expect("the position");
                // The broker sends again what was not acknowledged, so it starts a little before that.
                for offset in applied.map_or(0, |applied| (applied - 2).max(0))..end {
                    apply(&pool, partition, offset).await.expect("applied or stale");
                    println!("{offset}");
                }
            }

            pub(super) async fn connect(url: &str) -> Pool<$db> {
                PoolOptions::new().max_connections(8).connect(url).await.expect("the database")
            }

            pub(super) async fn deliver(pool: Pool<$db>, id: String, crash: bool) -> sqlx::Result<Outcome<()>> {
                record(&pool, &id, crash).await
            }

            pub(super) async fn purge(pool: Pool<$db>, size: Option<u32>, pause: u64) -> u64 {
                let options = match size {
                    Some(size) => PurgeOptions::new().batch_size(size).pause(Duration::from_millis(pause)),
                    None => PurgeOptions::new(),
                };
                ClaimStore::new(pool).purge(options).await.expect("no error").deleted
            }

            pub(super) async fn clean(pool: Pool<$db>, size: u32) {
                let options = PurgeOptions::new().batch_size(size).pause(Duration::from_millis(100));
                let janitor = Janitor::new(ClaimStore::new(pool)).every(Duration::from_millis(500)).options(options);
                let _working = janitor.spawn();
                std::future::pending().await
            }
        }
    };
}

consumer!(sqlite, Sqlite, SqliteTransaction, "worker.record-sqlite", "worker.stream-sqlite");
consumer!(postgres, Postgres, PgTransaction, "worker.record-postgres", "worker.stream-postgres");
consumer!(mysql, MySql, MySqlTransaction, "worker.record-mysql", "worker.stream-mysql");

macro_rules! run {
    ($module:ident, $url:expr, $action:expr, $id:expr, $times:expr) => {{
        let pool = $module::connect($url).await;
        match $action {
            "deliver" => {
                let mut deliveries = JoinSet::new();
                for _ in 0..$times {
                    deliveries.spawn($module::deliver(pool.clone(), $id.to_owned(), false));
                }
                let outcomes = deliveries.join_all().await;
                for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
                    eprintln!("{error:?}");
                }
                let count = |of: &str| outcomes.iter().flatten().filter(|outcome| outcome.as_str() == of).count();
                let failed = outcomes.iter().filter(|outcome| outcome.is_err()).count();
                println!("processed {}, duplicate {}, failed {failed}", count("processed"), count("duplicate"));
            }
            "stream" => $module::stream(pool, $id, i64::try_from($times).expect("an offset")).await,
            "crash-inside" => drop($module::deliver(pool, $id.to_owned(), true).await),
            "crash-after" => {
                $module::deliver(pool, $id.to_owned(), false).await.expect("processed");
                abort();
            }
            "purge" => println!("deleted {}", $module::purge(pool, $id.parse().ok(), $times).await),
            "janitor" => $module::clean(pool, $id.parse().expect("a size")).await,
            other => panic!("no such action: {other}"),
        }
    }};
}

#[tokio::main]
async fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [url, action, id, times @ ..] = arguments.as_slice() else { panic!("worker URL ACTION ID [TIMES]") };
    let times: u64 = times.first().map_or(1, |times| times.parse().expect("a number"));
    match url.split(':').next() {
        Some("sqlite") => run!(sqlite, url, action.as_str(), id, times),
        Some("postgres") => run!(postgres, url, action.as_str(), id, times),
        _ => run!(mysql, url, action.as_str(), id, times),
    }
}
