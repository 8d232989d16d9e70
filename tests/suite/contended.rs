//! `wait`, `retry` and `isolation`: rivals, conflicts, and what is left of them.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use idempotent_runtime::{Error, Outcome, Transient, idempotent};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::task::JoinSet;

use crate::Tx;
use crate::handlers::{Step, effect, scripted};
use crate::harness::{World, drop_after, rounds};

#[idempotent(key = "{id}", wait = "0s", consumer = "contended.at-once")]
async fn at_once(#[tx] tx: &mut Tx<'_>, id: &str, hold: Duration) -> Result<String, Error> {
    effect(tx, id).await?;
    tokio::time::sleep(hold).await;
    Ok(crate::wait_setting(tx).await)
}

#[idempotent(key = "{id}", wait = "1200ms", consumer = "contended.a-second")]
async fn wait_a_second(#[tx] tx: &mut Tx<'_>, id: &str, hold: Duration) -> Result<String, Error> {
    effect(tx, id).await?;
    tokio::time::sleep(hold).await;
    Ok(crate::wait_setting(tx).await)
}

#[idempotent(key = "{id}", consumer = "contended.by-default")]
async fn wait_by_default(#[tx] tx: &mut Tx<'_>, id: &str, hold: Duration) -> Result<String, Error> {
    effect(tx, id).await?;
    tokio::time::sleep(hold).await;
    Ok(crate::wait_setting(tx).await)
}

/// Whether it is what somebody gets whose rival is still there.
fn is_in_progress(error: &Error) -> bool {
    assert!(error.is_transient(), "{error:?}");
    match error {
        Error::InProgress(rival) => rival.key() == "1" && error.http_status() == 409,
        // SQLite's one writer holds the whole database, not this key.
        Error::Database(_) => crate::ONE_WRITER,
        _ => false,
    }
}

/// Holds the key `1` of `consumer`, as a body that hangs does.
async fn held(world: &World, consumer: &str) -> sqlx::Transaction<'static, crate::Db> {
    let mut rival = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    let claim = format!(
        "INSERT INTO processed_messages (consumer, sender, {key}, expires_at) VALUES ('{consumer}', '', '1', {soon})",
        key = crate::KEY,
        soon = crate::SOON
    );
    rival.execute(AssertSqlSafe(claim)).await.unwrap();
    rival
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rival_that_hangs_never_blocks_for_longer_than_stated() {
    let world = World::new().await;
    let hold = Duration::ZERO;
    let rival = held(&world, "contended.at-once").await;
    let start = Instant::now();
    assert!(is_in_progress(&at_once(&world.pool, "1", hold).await.unwrap_err()));
    let waited = start.elapsed();
    println!("wait = 0s: answered after {waited:?}");
    assert!(waited < Duration::from_millis(900), "{waited:?}");
    drop(rival);
    let rival = held(&world, "contended.a-second").await;
    let start = Instant::now();
    assert!(is_in_progress(&wait_a_second(&world.pool, "1", hold).await.unwrap_err()));
    let waited = start.elapsed();
    println!("wait = 1200ms: answered after {waited:?}");
    // MariaDB counts whole seconds, and its clock may have begun one before.
    assert!((1000..4000).contains(&waited.as_millis()), "{waited:?}");
    drop(rival);
    let rival = held(&world, "contended.by-default").await;
    let start = Instant::now();
    assert!(is_in_progress(&wait_by_default(&world.pool, "1", hold).await.unwrap_err()));
    let waited = start.elapsed();
    println!("by default: answered after {waited:?}");
    assert!((4000..8000).contains(&waited.as_millis()), "{waited:?}");
    drop(rival);
    for outcome in [
        at_once(&world.pool, "1", hold).await,
        wait_a_second(&world.pool, "1", hold).await,
        wait_by_default(&world.pool, "1", hold).await,
    ] {
        assert!(outcome.unwrap().is_processed());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rival_that_ends_in_time_is_waited_for() {
    let world = World::new().await;
    let first = tokio::spawn({
        let pool = world.pool.clone();
        async move { wait_by_default(&pool, "1", Duration::from_millis(400)).await }
    });
    tokio::time::sleep(Duration::from_millis(150)).await;
    assert!(wait_by_default(&world.pool, "1", Duration::ZERO).await.unwrap().is_duplicate());
    assert!(first.await.unwrap().unwrap().is_processed());
}

/// The settings are the connection's own while the body runs, and after every end.
#[tokio::test]
async fn no_setting_leaks_into_the_body_or_back_into_the_pool() {
    let world = World::new().await;
    let options = sqlx::pool::PoolOptions::<crate::Db>::new().max_connections(1).after_connect(|connection, _| {
        Box::pin(async move {
            crate::set_own_wait(connection).await;
            Ok(())
        })
    });
    let pool = options.connect(&crate::url(&world.fresh)).await.unwrap();
    let own = crate::wait_setting(&mut pool.acquire().await.unwrap()).await;
    let hold = Duration::ZERO;
    for id in ["1", "2", "2"] {
        for outcome in [
            at_once(&pool, id, hold).await.unwrap(),
            wait_a_second(&pool, id, hold).await.unwrap(),
            wait_by_default(&pool, id, hold).await.unwrap(),
        ] {
            assert!(outcome.value().is_none_or(|seen| seen == own));
        }
        let mut connection = pool.acquire().await.unwrap();
        assert_eq!(crate::wait_setting(&mut connection).await, own);
    }
    let mut tx = pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    for id in ["2", "3", "3"] {
        assert!(at_once(&mut tx, id, hold).await.unwrap().value().is_none_or(|seen| seen == own), "joined");
        assert_eq!(crate::wait_setting(&mut tx).await, own, "joined");
    }
    tx.commit().await.unwrap();
    let mut connection = pool.acquire().await.unwrap();
    for id in ["2", "4"] {
        assert!(at_once(&mut connection, id, hold).await.unwrap().value().is_none_or(|seen| seen == own), "kept");
        assert_eq!(crate::wait_setting(&mut connection).await, own, "kept");
    }
    // Also where the claim was not to be had.
    world.run("DELETE FROM processed_messages").await;
    let rival = held(&world, "contended.at-once").await;
    assert!(is_in_progress(&at_once(&mut connection, "1", hold).await.unwrap_err()));
    assert_eq!(crate::wait_setting(&mut connection).await, own, "kept, and refused");
    drop((rival, connection));
    for polls in 1..30 {
        drop_after(polls, at_once(&pool, &format!("dropped-{polls}"), hold)).await;
        let seen = at_once(&pool, &format!("after-{polls}"), hold).await.unwrap().value();
        assert_eq!(seen.as_ref(), Some(&own), "{polls} polls");
        let mut connection = pool.acquire().await.unwrap();
        assert_eq!(crate::wait_setting(&mut connection).await, own, "{polls} polls");
    }
}

/// Fails with an error of the database so often.
struct Failing<'a> {
    left: &'a AtomicUsize,
    error: fn() -> sqlx::Error,
}

impl Failing<'_> {
    fn fail(&self) -> sqlx::Result<()> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(1), Ordering::Relaxed);
        if left > 0 { Err((self.error)()) } else { Ok(()) }
    }
}

#[derive(Clone)]
struct Order {
    id: String,
    lines: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("the order failed")]
struct OrderError(#[from] Error);

impl From<sqlx::Error> for OrderError {
    fn from(error: sqlx::Error) -> Self {
        Self(error.into())
    }
}

#[derive(Debug)]
struct Told(bool);

impl Transient for Told {
    fn is_transient(&self) -> bool {
        self.0
    }
}

impl From<Error> for Told {
    fn from(error: Error) -> Self {
        Self(error.is_transient())
    }
}

struct Shop;

impl Shop {
    #[idempotent(key = "{order.id}", retry = 3, consumer = "contended.method")]
    async fn place(&self, #[tx] tx: &mut Tx<'_>, mut order: Order, failing: &Failing<'_>) -> Result<usize, OrderError> {
        order.lines.push("last".into());
        effect(tx, &order.id).await?;
        failing.fail()?;
        Ok(order.lines.len())
    }
}

#[idempotent(key = "{id}", retry = 2, consumer = "contended.sqlx")]
async fn with_sqlx(#[tx] tx: &mut Tx<'_>, id: &str, failing: &Failing<'_>) -> sqlx::Result<()> {
    effect(tx, id).await?;
    failing.fail()
}

#[idempotent(key = "{id}", retry = 2, consumer = "contended.anyhow")]
async fn with_anyhow(#[tx] tx: &mut Tx<'_>, id: String, failing: &Failing<'_>) -> anyhow::Result<()> {
    effect(tx, &id).await?;
    failing.fail().map_err(|error| anyhow::Error::from(error).context("while charging"))
}

#[idempotent(key = "{id}", retry = 2, consumer = "contended.boxed")]
async fn with_box(
    #[tx] tx: &mut Tx<'_>,
    id: u64,
    failing: &Failing<'_>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    effect(tx, &id.to_string()).await?;
    Ok(failing.fail()?)
}

#[idempotent(key = "{id}", retry = 2, consumer = "contended.told")]
async fn with_own(#[tx] tx: &mut Tx<'_>, id: &str, failing: &Failing<'_>) -> Result<(), Told> {
    effect(tx, id).await.map_err(Error::from)?;
    failing.fail().map_err(|error| Told(matches!(error, sqlx::Error::RowNotFound)))
}

#[tokio::test]
async fn a_transient_error_runs_the_body_again_whatever_its_type() {
    let world = World::new().await;
    let pool = &world.pool;
    let left = &AtomicUsize::new(0);
    let failing = |times| {
        left.store(times, Ordering::Relaxed);
        Failing { left, error: || sqlx::Error::PoolTimedOut }
    };
    let order = || Order { id: "1".into(), lines: vec!["first".into()] };
    let placed = Shop.place(pool, order(), &failing(3)).await.unwrap();
    assert_eq!(placed, Outcome::Processed(2), "each run has had arguments of its own");
    assert!(with_sqlx(pool, "2", &failing(2)).await.unwrap().is_processed());
    assert!(with_anyhow(pool, "3".into(), &failing(2)).await.unwrap().is_processed());
    assert!(with_box(pool, 4, &failing(2)).await.unwrap().is_processed());
    let own = Failing { error: || sqlx::Error::RowNotFound, ..failing(2) };
    assert!(with_own(pool, "5", &own).await.unwrap().is_processed());
    assert_eq!((world.effects().await, world.claims().await), (5, 5));
    // Once more than it may.
    assert!(with_sqlx(pool, "6", &failing(3)).await.is_err());
    assert_eq!((left.load(Ordering::Relaxed), world.effects().await, world.claims().await), (0, 5, 5));
}

#[tokio::test]
async fn what_would_fail_again_and_what_joins_runs_once() {
    let world = World::new().await;
    let left = AtomicUsize::new(9);
    let lasting = Failing { left: &left, error: || sqlx::Error::RowNotFound };
    assert!(with_sqlx(&world.pool, "1", &lasting).await.is_err());
    assert_eq!(left.swap(9, Ordering::Relaxed), 8);
    let unknown = Failing { left: &left, error: || Error::CommitUnknown(sqlx::Error::WorkerCrashed).into() };
    assert!(with_sqlx(&world.pool, "1", &unknown).await.is_err());
    assert_eq!(left.swap(9, Ordering::Relaxed), 8, "after a commit of unknown fate");
    let passing = Failing { left: &left, error: || sqlx::Error::PoolTimedOut };
    let mut tx = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    effect(&mut tx, "callers").await.unwrap();
    assert!(with_sqlx(&mut tx, "1", &passing).await.is_err());
    assert_eq!(left.load(Ordering::Relaxed), 8, "in its caller's transaction");
    idempotent_runtime::commit(tx).await.unwrap();
    assert_eq!((world.effects().await, world.claims().await), (1, 0));
}

/// Of a database that is busy for longer than anybody waits, `retry` asks again; without it, that is an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_is_busy_for_too_long_is_asked_again_where_that_is_wanted() {
    #[idempotent(key = "{id}", wait = "0s", retry = 50, consumer = "contended.patient")]
    async fn patient(#[tx] tx: &mut Tx<'_>, id: &str) -> sqlx::Result<()> {
        effect(tx, id).await
    }
    let world = World::new().await;
    if crate::ONE_WRITER {
        let rival = held(&world, "contended.at-once").await;
        let waiting = tokio::spawn({
            let pool = world.pool.clone();
            async move { patient(&pool, "1").await }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(at_once(&world.pool, "2", Duration::ZERO).await.unwrap_err().is_transient());
        drop(rival);
        assert!(waiting.await.unwrap().unwrap().is_processed());
    } else {
        // A rival that holds the key is waited for as long as `wait` says, and not once more for each retry.
        let rival = held(&world, "contended.patient").await;
        let start = Instant::now();
        assert!(is_in_progress(&Error::from(patient(&world.pool, "1").await.unwrap_err())));
        assert!(start.elapsed() < Duration::from_millis(900));
        drop(rival);
    }
}

#[idempotent(key = "{id}", isolation = "serializable", retry = 100, consumer = "contended.hot-row")]
async fn add_to_hot_row(#[tx] tx: &mut Tx<'_>, id: &str, runs: &AtomicUsize) -> sqlx::Result<()> {
    runs.fetch_add(1, Ordering::Relaxed);
    let count: i64 = sqlx::query_scalar("SELECT count FROM hot WHERE id = 1").fetch_one(&mut **tx).await?;
    tx.execute(AssertSqlSafe(format!("UPDATE hot SET count = {} WHERE id = 1", count + 1))).await?;
    effect(tx, id).await
}

/// Every run reads the row and writes it back: without isolation updates would be lost, without `retry` conflicts would
/// surface.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_workers_on_one_hot_row_apply_every_message_once_and_surface_nothing() {
    let world = World::with_connections(16).await;
    world.run("CREATE TABLE hot (id INTEGER NOT NULL PRIMARY KEY, count BIGINT NOT NULL)").await;
    world.run("INSERT INTO hot VALUES (1, 0)").await;
    let messages = rounds(160, 5_000);
    let runs = std::sync::Arc::new(AtomicUsize::new(0));
    let mut workers = JoinSet::new();
    for worker in 0..16 {
        let (pool, runs) = (world.pool.clone(), runs.clone());
        workers.spawn(async move {
            for message in (worker..messages).step_by(16) {
                let outcome = add_to_hot_row(&pool, &message.to_string(), &runs).await;
                assert!(outcome.expect("nothing surfaces").is_processed());
            }
        });
    }
    workers.join_all().await;
    let runs = runs.load(Ordering::Relaxed);
    println!("{messages} messages, {} runs again", runs - messages);
    let messages = i64::try_from(messages).unwrap();
    assert_eq!(world.number("SELECT count FROM hot").await, messages);
    assert_eq!((world.effects().await, world.claims().await), (messages, messages));
}

#[tokio::test]
async fn an_isolation_is_refused_in_a_transaction_that_has_its_own() {
    let world = World::new().await;
    world.run("CREATE TABLE hot (id INTEGER NOT NULL PRIMARY KEY, count BIGINT NOT NULL)").await;
    world.run("INSERT INTO hot VALUES (1, 0)").await;
    let runs = AtomicUsize::new(0);
    let mut tx = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    let error = Error::from(add_to_hot_row(&mut tx, "1", &runs).await.unwrap_err());
    assert!(matches!(&error, Error::Configuration(text) if text.contains("isolation = \"serializable\"")), "{error:?}");
    effect(&mut tx, "callers").await.unwrap();
    idempotent_runtime::commit(tx).await.unwrap();
    let mut connection = world.pool.acquire().await.unwrap();
    assert!(add_to_hot_row(&mut connection, "1", &runs).await.unwrap().is_processed());
    assert_eq!((world.effects().await, runs.load(Ordering::Relaxed)), (2, 1));
}

#[idempotent(key = "{id}", isolation = "repeatable read", consumer = "contended.snapshot")]
async fn in_a_snapshot(#[tx] tx: &mut Tx<'_>, id: &str) -> Result<String, Error> {
    Ok(crate::isolation(tx).await)
}

#[idempotent(key = "{id}", isolation = "read committed", consumer = "contended.committed")]
async fn in_what_is_committed(#[tx] tx: &mut Tx<'_>, id: &str) -> Result<String, Error> {
    Ok(crate::isolation(tx).await)
}

#[tokio::test]
async fn the_isolation_is_that_of_the_handlers_transaction_alone() {
    let world = World::with_connections(1).await;
    let own = crate::isolation(&mut world.pool.acquire().await.unwrap()).await;
    for id in ["1", "2"] {
        let expected = |level: &str| if crate::ONE_WRITER { own.clone() } else { level.to_owned() };
        assert_eq!(in_a_snapshot(&world.pool, id).await.unwrap().value(), Some(expected("repeatable read")));
        assert_eq!(crate::isolation(&mut world.pool.acquire().await.unwrap()).await, own);
        assert_eq!(in_what_is_committed(&world.pool, id).await.unwrap().value(), Some(expected("read committed")));
        let mut connection = world.pool.acquire().await.unwrap();
        let kept = in_a_snapshot(&mut connection, &format!("kept-{id}")).await.unwrap();
        assert_eq!(kept.value(), Some(expected("repeatable read")));
        assert_eq!(crate::isolation(&mut connection).await, own);
    }
}

/// Conflicts before the body has run are not its business: nobody asked for `retry`.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn conflicts_while_claiming_are_tried_again_without_being_asked() {
    for level in crate::ISOLATION_LEVELS {
        let world = World::new().await;
        let pool = crate::pool_with_isolation(&world.fresh, level).await;
        let mut deliveries = JoinSet::new();
        for delivery in 0..40 {
            let pool = pool.clone();
            deliveries.spawn(async move {
                let script = [Step::Effect];
                scripted(&pool, &format!("message-{}", delivery % 8), &script).await
            });
        }
        let outcomes = deliveries.join_all().await;
        let errors: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
        assert!(errors.is_empty(), "{level}: {errors:?}");
        assert_eq!((world.effects().await, world.claims().await), (8, 8), "{level}");
    }
}
