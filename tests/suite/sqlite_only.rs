//! What only SQLite can do to a handler: a full disk (D10), readers that become writers (D9), hooks.

use std::time::Duration;

use idempotent_runtime::{Error, commit};
use sqlx::Executor as _;
use tokio::task::JoinSet;

use crate::handlers::{self, Step};
use crate::harness::{World, connect};

#[path = "deferred.rs"]
mod deferred;

/// Fills the database to the last page that it may have.
async fn fill_the_disk(world: &World) {
    world.run("CREATE TABLE ballast (data BLOB)").await;
    let pages: i64 = world.number("PRAGMA page_count").await;
    let limit = format!("PRAGMA max_page_count = {}", pages + 4);
    world.pool.execute(sqlx::AssertSqlSafe(limit)).await.unwrap();
}

const BALLAST: &str = "INSERT INTO ballast VALUES (randomblob(1000000))";

#[tokio::test]
async fn a_full_disk_is_the_original_error_or_a_lost_transaction_and_leaves_no_claim() {
    for steps in [&[Step::Effect, Step::Run(BALLAST)][..], &[Step::Effect, Step::Try(BALLAST), Step::Try(BALLAST)]] {
        let world = World::with_connections(1).await;
        fill_the_disk(&world).await;
        let outcome = handlers::scripted(&world.pool, "1", steps).await;
        let claimed = match outcome {
            Ok(outcome) => i64::from(outcome.is_processed()), // SQLite undid the statement alone
            Err(Error::TransactionLost(lost)) if !lost.claim_kept() => 0,
            Err(Error::Database(sqlx::Error::Database(error))) if error.code().as_deref() == Some("13") => 0,
            Err(error) => panic!("{error:?}"),
        };
        assert_eq!((world.effects().await, world.claims().await), (claimed, claimed));
        for next in ["2", "3"] {
            assert!(handlers::record(&world.pool, next).await.unwrap().is_processed(), "the connection stays usable");
            assert_eq!(world.effects_of(next).await, 1);
        }
    }
}

#[tokio::test]
async fn a_rollback_by_a_constraint_of_the_applications_own_is_seen() {
    let world = World::with_connections(1).await;
    world.run("INSERT INTO singles (id) VALUES ('taken')").await;
    let rolls_back = "INSERT OR ROLLBACK INTO singles (id) VALUES ('taken')";
    for (id, steps) in [
        ("ok", &[Step::Effect, Step::Try(rolls_back)][..]),
        ("more", &[Step::Effect, Step::Try(rolls_back), Step::Try("INSERT INTO effects (id) VALUES ('late')")]),
        ("error", &[Step::Effect, Step::Run(rolls_back)]),
    ] {
        let error = handlers::scripted(&world.pool, id, steps).await.unwrap_err();
        assert!(matches!(&error, Error::TransactionLost(lost) if !lost.claim_kept()), "{id}: {error:?}");
        assert_eq!((world.effects().await, world.claims().await), (0, 0), "{id}");
    }
    assert!(handlers::record(&world.pool, "next").await.unwrap().is_processed());
    assert_eq!(world.effects_of("next").await, 1);
}

#[tokio::test]
async fn a_joined_handler_after_whose_loss_the_caller_goes_on_cannot_commit_half() {
    let world = World::with_connections(1).await;
    world.run("INSERT INTO singles (id) VALUES ('taken')").await;
    let rolls_back = Step::Try("INSERT OR ROLLBACK INTO singles (id) VALUES ('taken')");
    let mut tx = world.pool.begin().await.unwrap();
    handlers::effect(&mut tx, "before").await.unwrap();
    assert!(handlers::scripted(&mut tx, "1", &[Step::Effect, rolls_back]).await.is_err());
    handlers::effect(&mut tx, "after").await.unwrap();
    tx.commit().await.expect_err("sqlx's own commit is refused too");
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    assert!(handlers::record(&world.pool, "next").await.unwrap().is_processed());
    assert_eq!(world.effects_of("next").await, 1);

    // And a caller that gives up finds its connection in order.
    let mut tx = world.pool.begin().await.unwrap();
    assert!(handlers::scripted(&mut tx, "1", &[Step::Effect, rolls_back]).await.is_err());
    tx.rollback().await.unwrap();
    let mut tx = world.pool.begin().await.unwrap();
    handlers::effect(&mut tx, "plain").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(world.effects_of("plain").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn contenders_in_wal_mode_wait_for_each_other_and_busy_is_no_duplicate() {
    let world = World::with_connections(1).await;
    world.run("PRAGMA journal_mode = WAL").await;
    let mut deliveries = JoinSet::new();
    for contender in 0..8 {
        let pool = connect(&world.fresh, 1).await;
        deliveries.spawn(async move {
            for message in 0..10 {
                let script = [Step::Run("SELECT count(*) FROM effects"), Step::Effect];
                let id = format!("{contender}-{message}");
                assert!(handlers::scripted(&pool, &id, &script).await.expect("no error").is_processed());
            }
        });
    }
    deliveries.join_all().await;
    assert_eq!((world.effects().await, world.claims().await), (80, 80));
}

#[tokio::test]
async fn a_writer_that_never_ends_is_a_transient_error_and_no_duplicate() {
    let world = World::with_connections(1).await;
    let hurried = {
        let options: sqlx::sqlite::SqliteConnectOptions = crate::url(&world.fresh).parse().unwrap();
        let options = options.busy_timeout(Duration::from_millis(50));
        sqlx::pool::PoolOptions::<crate::Db>::new().max_connections(1).connect_with(options).await.unwrap()
    };
    let writer = world.pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let error = Error::from(handlers::record(&hurried, "1").await.unwrap_err());
    assert!(matches!(error, Error::Database(_)) && error.is_transient(), "{error:?}");
    assert_eq!(error.http_status(), 503);
    writer.rollback().await.unwrap();
    assert!(handlers::record(&hurried, "1").await.unwrap().is_processed());
}

/// A caller that has read before it calls a handler holds a snapshot; SQLite refuses it the write lock at once.
#[tokio::test]
async fn a_joined_handler_behind_a_stale_read_is_a_transient_error_and_no_duplicate() {
    let world = World::with_connections(1).await;
    world.run("PRAGMA journal_mode = WAL").await;
    let mut tx = world.pool.begin().await.unwrap();
    let _: i64 = sqlx::query_scalar("SELECT count(*) FROM effects").fetch_one(&mut *tx).await.unwrap();
    world.run("INSERT INTO effects (id) VALUES ('elsewhere')").await;
    let error = Error::from(handlers::record(&mut tx, "1").await.unwrap_err());
    assert!(error.is_transient(), "{error:?}");
    tx.rollback().await.unwrap();
    let mut tx = world.pool.begin().await.unwrap();
    assert!(handlers::record(&mut tx, "1").await.unwrap().is_processed());
    commit(tx).await.unwrap();
}

#[tokio::test]
async fn a_database_in_memory_survives_dropped_handlers() {
    // With its ping, sqlx 0.9.0 closes a connection whose `acquire` is dropped, and the database with it.
    let options = sqlx::pool::PoolOptions::<crate::Db>::new().max_connections(1).test_before_acquire(false);
    let pool = options.connect("sqlite::memory:").await.unwrap();
    idempotent_runtime::migrate(&pool).await.unwrap();
    pool.execute("CREATE TABLE effects (id TEXT NOT NULL)").await.unwrap();
    assert!(handlers::record(&pool, "kept").await.unwrap().is_processed());
    for polls in 1..40 {
        crate::harness::drop_after(polls, handlers::record(&pool, &format!("dropped-{polls}"))).await;
    }
    assert!(handlers::record(&pool, "kept").await.unwrap().is_duplicate());
}

#[tokio::test]
async fn outside_handlers_the_connection_commits_as_ever() {
    let world = World::with_connections(1).await;
    assert!(handlers::record(&world.pool, "1").await.unwrap().is_processed());
    world.pool.execute("INSERT INTO effects (id) VALUES ('autocommit')").await.unwrap();
    let mut tx = world.pool.begin().await.unwrap();
    handlers::effect(&mut tx, "transaction").await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!((world.effects_of("autocommit").await, world.effects_of("transaction").await), (1, 1));
}

/// Whatever the moment of the drop, on a connection that the caller keeps as on the pool's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_dropped_while_it_finds_its_transaction_lost_leaves_a_sound_connection() {
    let world = World::with_connections(1).await;
    world.run("INSERT INTO singles (id) VALUES ('taken')").await;
    let lost = [Step::Effect, Step::Try("INSERT OR ROLLBACK INTO singles (id) VALUES ('taken')")];
    for polls in 1..=20 {
        for kept in [true, false] {
            let id = format!("{kept}-{polls}");
            let dropped = if kept {
                let mut leased = world.pool.acquire().await.unwrap();
                crate::harness::drop_after(polls, handlers::scripted(&mut leased, &id, &lost)).await
            } else {
                crate::harness::drop_after(polls, handlers::scripted(&world.pool, &id, &lost)).await
            };
            let insert = format!("INSERT INTO effects (id) VALUES ('plain-{id}')");
            world.pool.execute(sqlx::AssertSqlSafe(insert)).await.expect("no error");
            assert_eq!(world.effects_of(&format!("plain-{id}")).await, 1, "{id}: {dropped:?}");
            assert!(handlers::record(&world.pool, &format!("next-{id}")).await.unwrap().is_processed(), "{id}");
            assert_eq!(world.effects_of(&format!("next-{id}")).await, 1, "{id}");
            assert_eq!(world.effects_of(&id).await, 0, "{id}");
        }
    }
}

/// Not seen by sqlx, but never rolled back in the caller's place.
#[tokio::test]
async fn a_transaction_begun_by_text_on_a_kept_connection_is_left_alone() {
    let world = World::with_connections(1).await;
    let mut leased = world.pool.acquire().await.unwrap();
    leased.execute("BEGIN").await.unwrap();
    leased.execute("INSERT INTO effects (id) VALUES ('by-text')").await.unwrap();
    assert!(handlers::record(&mut leased, "1").await.is_err());
    leased.execute("COMMIT").await.unwrap();
    assert_eq!((world.effects_of("by-text").await, world.effects_of("1").await), (1, 0));
}
