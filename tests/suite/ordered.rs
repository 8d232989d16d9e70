//! `sequence`: what is older than what was applied is dropped, in any order of arrival.

use std::time::{Duration, SystemTime};

use idempotent_runtime::{ClaimStore, Disposition, Error, Key, Outcome, SequenceNumber, idempotent};
use sqlx::{AssertSqlSafe, Executor as _};
use tokio::task::JoinSet;

use crate::Tx;
use crate::handlers::effect;
use crate::harness::{World, drop_after, rounds};

struct Update {
    id: String,
    order: String,
    version: i64,
}

fn update(id: &str, order: &str, version: i64) -> Update {
    Update { id: id.into(), order: order.into(), version }
}

#[idempotent(key = "{update.id}", sequence(entity = "{update.order}", number = "update.version"))]
async fn apply(#[tx] tx: &mut Tx<'_>, update: &Update, fail: bool) -> Result<(), Error> {
    effect(tx, &format!("{}-{}", update.order, update.version)).await?;
    if fail { Err(sqlx::Error::RowNotFound.into()) } else { Ok(()) }
}

/// An offset of a stream, committed with its data.
#[idempotent(sequence(entity = "{topic}/{partition}", number = "offset"), consumer = "ordered.consume")]
pub(crate) async fn consume(#[tx] tx: &mut Tx<'_>, topic: &str, partition: i32, offset: i64) -> sqlx::Result<()> {
    effect(tx, &format!("{topic}-{partition}-{offset}")).await
}

#[idempotent(sequence(entity = "{order}", number = "number"), sender = "{sender}")]
async fn follow<N: SequenceNumber + Sync>(
    #[tx] tx: &mut Tx<'_>,
    sender: &str,
    order: &str,
    number: N,
) -> Result<(), Error> {
    Ok(effect(tx, order).await?)
}

/// Its entity stands nowhere but in its position.
#[idempotent(sequence(entity = "{entity}", number = "number"))]
async fn move_on(#[tx] tx: &mut Tx<'_>, entity: &str, number: i64) -> Result<(), Error> {
    Ok(effect(tx, "moved").await?)
}

/// Swallows an error, or sends what it is told.
#[idempotent(sequence(entity = "{order}", number = "number"))]
async fn follow_badly(#[tx] tx: &mut Tx<'_>, order: &str, number: i64, sql: &str) -> Result<(), Error> {
    effect(tx, order).await?;
    let _ = tx.execute(AssertSqlSafe(sql)).await;
    Ok(())
}

#[idempotent(
    key = "{id}",
    retention = "1h",
    occurred_at = "at",
    expired = "skip",
    sequence(entity = "{order}", number = "number")
)]
async fn apply_recent(#[tx] tx: &mut Tx<'_>, id: &str, at: SystemTime, order: &str, number: i64) -> sqlx::Result<()> {
    effect(tx, id).await
}

/// Keeps the newest value of each order.
#[idempotent(key = "{update.id}", sequence(entity = "{update.order}", number = "update.version"))]
async fn set(#[tx] tx: &mut Tx<'_>, update: &Update) -> Result<(), Error> {
    let Update { order, version, .. } = update;
    let changed = tx
        .execute(AssertSqlSafe(format!(
            "UPDATE state SET version = {version}, applied = applied + 1 WHERE id = '{order}'"
        )))
        .await?;
    assert_eq!(changed.rows_affected(), 1);
    Ok(())
}

async fn positions(world: &World) -> i64 {
    world.number("SELECT count(*) FROM processed_messages_positions").await
}

#[tokio::test]
async fn only_what_is_newer_runs_and_what_is_stale_leaves_no_claim() {
    let world = World::new().await;
    assert!(apply(&world.pool, &update("b", "1", 2), false).await.unwrap().is_processed());
    for (id, version) in [("a", 1), ("b-again", 2)] {
        let outcome = apply(&world.pool, &update(id, "1", version), false).await.unwrap();
        let Outcome::Stale(stale) = &outcome else { panic!("{outcome:?}") };
        assert_eq!((stale.consumer(), stale.entity(), stale.number()), ("tests.apply", "1", version));
        assert_eq!(outcome.as_str(), "stale");
    }
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
    assert!(apply(&world.pool, &update("c", "1", 3), false).await.unwrap().is_processed());
    assert!(apply(&world.pool, &update("other", "2", -7), false).await.unwrap().is_processed());
    assert_eq!((world.effects().await, world.claims().await, positions(&world).await), (3, 3, 2));
}

#[tokio::test]
async fn a_claim_is_decided_before_age_and_age_before_order() {
    let world = World::new().await;
    let (now, old) = (SystemTime::now(), SystemTime::now() - Duration::from_secs(3601));
    assert!(apply_recent(&world.pool, "1", now, "a", 5).await.unwrap().is_processed());
    // Stale and old as well, and still a duplicate.
    assert_eq!(apply_recent(&world.pool, "1", old, "a", 1).await.unwrap().as_str(), "duplicate");
    assert_eq!(apply_recent(&world.pool, "2", old, "a", 1).await.unwrap().as_str(), "expired");
    assert_eq!(apply_recent(&world.pool, "3", now, "a", 1).await.unwrap().as_str(), "stale");
    // What has expired has not moved its entity.
    assert_eq!(apply_recent(&world.pool, "4", old, "a", 9).await.unwrap().as_str(), "expired");
    assert!(apply_recent(&world.pool, "5", now, "a", 6).await.unwrap().is_processed());
    assert_eq!((world.effects().await, world.claims().await), (2, 2));
}

#[tokio::test]
async fn a_failed_run_moves_nothing() {
    let world = World::new().await;
    assert!(apply(&world.pool, &update("1", "a", 2), true).await.is_err());
    assert_eq!((world.effects().await, world.claims().await, positions(&world).await), (0, 0, 0));
    assert!(apply(&world.pool, &update("0", "a", 1), false).await.unwrap().is_processed());
    assert!(apply(&world.pool, &update("1", "a", 2), true).await.is_err());
    let store = ClaimStore::new(world.pool.clone());
    assert_eq!(store.position("tests.apply", "", "a").await.unwrap(), Some(1));
    assert!(apply(&world.pool, &update("1", "a", 2), false).await.unwrap().is_processed());
}

#[tokio::test]
async fn a_stream_goes_on_from_its_stored_position() {
    let world = World::new().await;
    let store = ClaimStore::builder(world.pool.clone()).table("offsets").build().unwrap();
    store.migrate().await.unwrap();
    assert_eq!(store.position("ordered.consume", "", "orders/0").await.unwrap(), None);
    for offset in [0, 1, 1, 0, 2] {
        consume(&store, "orders", 0, offset).await.unwrap();
    }
    assert!(consume(&store, "orders", 1, 0).await.unwrap().is_processed());
    assert_eq!(store.position("ordered.consume", "", "orders/0").await.unwrap(), Some(2));
    assert_eq!((world.effects().await, world.claims().await), (4, 0));
}

#[tokio::test]
async fn orders_of_other_senders_and_consumers_are_others() {
    let world = World::new().await;
    for sender in ["a", "b"] {
        assert!(follow(&world.pool, sender, "1", 1_u8).await.unwrap().is_processed());
        assert_eq!(follow(&world.pool, sender, "1", 1_u64).await.unwrap().as_str(), "stale");
    }
    assert!(follow_badly(&world.pool, "1", 1, "SELECT 1").await.unwrap().is_processed());
    assert_eq!(positions(&world).await, 3);
}

#[tokio::test]
async fn entities_differ_by_case_space_and_length_and_any_of_them_can_be_asked_for() {
    let world = World::new().await;
    let store = ClaimStore::new(world.pool.clone());
    let long = "\u{e4}".repeat(5000);
    let entities = ["order", "Order", "order ", "ord\u{e9}r", &long, &long[2..], "a:b/c"];
    for (number, entity) in (1..).zip(entities) {
        assert!(move_on(&world.pool, entity, number).await.unwrap().is_processed(), "{entity}");
    }
    for (number, entity) in (1..).zip(entities) {
        let stored = Key::new(entity).unwrap();
        assert_eq!(store.position("tests.move_on", "", stored.key()).await.unwrap(), Some(number), "{entity}");
    }
}

#[tokio::test]
async fn numbers_have_the_whole_range_and_what_does_not_fit_is_refused() {
    let world = World::new().await;
    for number in [i64::MIN, -1, 0, i64::MAX] {
        assert!(follow(&world.pool, "s", "1", number).await.unwrap().is_processed(), "{number}");
        assert_eq!(follow(&world.pool, "s", "1", number).await.unwrap().as_str(), "stale", "{number}");
        assert_eq!(follow(&world.pool, "s", "1", i64::MIN).await.unwrap().as_str(), "stale", "{number}");
    }
    let error = follow(&world.pool, "s", "1", u64::MAX).await.unwrap_err();
    assert!(matches!(&error, Error::NumberOutOfRange { .. }), "{error:?}");
    assert_eq!((error.disposition(), error.http_status()), (Disposition::DeadLetter, 400));
    assert!(matches!(follow(&world.pool, "s", " ", 1).await, Err(Error::MissingKey { .. })));
    let later = SystemTime::now();
    assert!(follow(&world.pool, "s", "time", later).await.unwrap().is_processed());
    assert_eq!(follow(&world.pool, "s", "time", later - Duration::from_nanos(1)).await.unwrap().as_str(), "stale");
    assert!(follow(&world.pool, "s", "time", later + Duration::from_nanos(1)).await.unwrap().is_processed());
}

/// Without a claim it is the position that must not stay alone.
#[tokio::test]
async fn a_lost_transaction_of_an_order_is_seen() {
    let world = World::new().await;
    for (number, sql) in [(1, "ROLLBACK"), (2, "SELECT * FROM missing"), (3, "COMMIT")] {
        let outcome = follow_badly(&world.pool, "1", number, sql).await;
        let lost = match outcome {
            Err(Error::TransactionLost(lost)) => lost,
            Ok(Outcome::Processed(())) if number == 2 && !crate::ERROR_ABORTS => continue,
            other => panic!("{sql}: {other:?}"),
        };
        assert_eq!(lost.claim_kept(), number == 3 && crate::BODYS_COMMIT_STAYS, "{sql}");
    }
}

#[tokio::test]
async fn a_dropped_future_moves_nothing() {
    let world = World::with_connections(1).await;
    for polls in 1..40 {
        drop_after(polls, follow_badly(&world.pool, &format!("order-{polls}"), 1, "SELECT 1")).await;
    }
    let store = ClaimStore::new(world.pool.clone());
    for polls in 1..40 {
        let order = format!("order-{polls}");
        let moved = store.position("tests.follow_badly", "", &order).await.unwrap().is_some();
        assert_eq!(i64::from(moved), world.effects_of(&order).await, "{polls} polls");
    }
}

#[tokio::test]
async fn a_joined_handler_that_is_stale_leaves_its_callers_transaction_as_it_was() {
    let world = World::new().await;
    assert!(apply(&world.pool, &update("5", "a", 5), false).await.unwrap().is_processed());
    let mut tx = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
    effect(&mut tx, "callers").await.unwrap();
    assert_eq!(apply(&mut tx, &update("4", "a", 4), false).await.unwrap().as_str(), "stale");
    assert!(apply(&mut tx, &update("6", "a", 6), false).await.unwrap().is_processed());
    assert!(apply(&mut tx, &update("7", "a", 7), true).await.is_err());
    idempotent_runtime::commit(tx).await.unwrap();
    let store = ClaimStore::new(world.pool.clone());
    assert_eq!(store.position("tests.apply", "", "a").await.unwrap(), Some(6));
    assert_eq!((world.effects().await, world.claims().await), (3, 2));
}

/// Delivers shuffled updates with duplicates from eight workers, and redelivers what fails for a passing reason.
async fn shuffled(world: &World, pool: sqlx::Pool<crate::Db>, updates: usize, orders: usize) {
    world.run("CREATE TABLE state (id VARCHAR(100) NOT NULL PRIMARY KEY, version BIGINT NOT NULL, applied BIGINT NOT NULL)").await;
    for order in 0..orders {
        world.run(&format!("INSERT INTO state VALUES ('order-{order}', 0, 0)")).await;
    }
    let mut stream: Vec<usize> = (0..updates).chain((0..updates).step_by(3)).collect();
    fastrand::Rng::with_seed(7).shuffle(&mut stream);
    let mut workers = JoinSet::new();
    for chunk in stream.chunks(stream.len().div_ceil(8)) {
        let (chunk, pool) = (chunk.to_vec(), pool.clone());
        workers.spawn(async move {
            let (mut processed, mut retried) = (0, 0);
            for number in chunk {
                let version = i64::try_from(number / orders + 1).unwrap();
                let update = update(&number.to_string(), &format!("order-{}", number % orders), version);
                loop {
                    match set(&pool, &update).await {
                        Ok(outcome) => break processed += usize::from(outcome.is_processed()),
                        Err(error) => assert!(error.is_transient(), "{error:?}"),
                    }
                    retried += 1;
                    tokio::time::sleep(Duration::from_millis(fastrand::u64(1..10))).await;
                }
            }
            (processed, retried)
        });
    }
    let counts = workers.join_all().await;
    let (processed, retried) = counts.into_iter().fold((0, 0), |(p, r), (processed, retry)| (p + processed, r + retry));
    println!("{} deliveries of {updates} updates: {processed} processed, {retried} redelivered", stream.len());
    let newest = i64::try_from(updates / orders).unwrap();
    assert_eq!(world.number(&format!("SELECT count(*) FROM state WHERE version <> {newest}")).await, 0);
    let applied = "SELECT CAST(sum(applied) AS DECIMAL(18, 0)) FROM state";
    let applied = applied.replace("DECIMAL(18, 0)", crate::INTEGER);
    assert_eq!(world.number(&applied).await, i64::try_from(processed).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shuffled_stream_ends_in_the_state_of_the_ordered_one() {
    let world = World::new().await;
    shuffled(&world, world.pool.clone(), rounds(1_000, 10_000), 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_shuffled_stream_ends_in_the_same_state_under_every_isolation_level() {
    for level in crate::ISOLATION_LEVELS {
        let world = World::new().await;
        shuffled(&world, crate::pool_with_isolation(&world.fresh, level).await, 200, 4).await;
    }
}
