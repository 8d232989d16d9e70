//! What only MariaDB and MySQL can do to a handler: autocommit, collations, row counts (D4, D5, D8).

use idempotent_runtime::{ClaimStore, Error, PurgeOptions};
use sqlx::Executor as _;

use crate::handlers::{self, Step};
use crate::harness::World;

#[path = "deadlock.rs"]
mod deadlock;

async fn autocommit(world: &World) -> i64 {
    sqlx::query_scalar("SELECT CAST(@@autocommit AS SIGNED)").fetch_one(&world.pool).await.unwrap()
}

#[tokio::test]
async fn autocommit_is_back_after_every_end() {
    let world = World::with_connections(1).await;
    world.run("INSERT INTO singles (id) VALUES ('taken')").await;
    let scripts: [&[Step<'_>]; 6] = [
        &[Step::Effect],
        &[Step::Effect],
        &[Step::Fail],
        &[Step::Try("ROLLBACK")],
        &[Step::Try("COMMIT")],
        &[Step::Run("INSERT INTO singles (id) VALUES ('taken')")],
    ];
    for (round, steps) in scripts.into_iter().enumerate() {
        let _ = handlers::scripted(&world.pool, if round < 2 { "same" } else { "other" }, steps).await;
        assert_eq!(autocommit(&world).await, 1, "round {round}");
    }
    let hanging = handlers::scripted(&world.pool, "hangs", &[Step::Effect, Step::Hang]);
    assert!(tokio::time::timeout(std::time::Duration::from_millis(200), hanging).await.is_err());
    assert_eq!(autocommit(&world).await, 1, "after a drop");
    let pool = world.pool.clone();
    let panicked = tokio::spawn(async move { handlers::scripted(&pool, "panics", &[Step::Panic]).await }).await;
    assert!(panicked.is_err());
    assert_eq!(autocommit(&world).await, 1, "after a panic");
}

#[tokio::test]
async fn a_lenient_sql_mode_hides_nothing() {
    let world = World::with_connections(1).await;
    world.pool.execute("SET SESSION sql_mode = ''").await.unwrap();
    let long = "k".repeat(255);
    assert!(handlers::count(&world.pool, &long).await.unwrap().is_processed());
    assert!(handlers::count(&world.pool, &format!("{}x", "k".repeat(254))).await.unwrap().is_processed());
    assert!(handlers::count(&world.pool, &long).await.unwrap().is_duplicate());
    assert_eq!(world.number("SELECT max(length(`key`)) FROM processed_messages").await, 255);
}

#[tokio::test]
async fn a_strange_sql_mode_changes_nothing() {
    let world = World::with_connections(1).await;
    world.pool.execute("SET SESSION sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES,TRADITIONAL'").await.unwrap();
    for key in ["a\\'b", "a\"b", "a`b"] {
        assert!(handlers::count(&world.pool, key).await.unwrap().is_processed());
        assert!(handlers::count(&world.pool, key).await.unwrap().is_duplicate());
    }
}

#[tokio::test]
async fn messages_in_another_language_change_nothing() {
    let world = World::not_migrated(1).await;
    world.pool.execute("SET lc_messages = 'de_DE'").await.unwrap();
    let error = Error::from(handlers::record(&world.pool, "1").await.unwrap_err());
    let Error::NotMigrated { source, .. } = error else { panic!("{error:?}") };
    assert!(source.to_string().contains("existiert nicht"), "{source}");

    idempotent_runtime::migrate(&world.pool).await.unwrap();
    world.run("CREATE TABLE effects (id VARCHAR(100) NOT NULL)").await;
    assert!(handlers::record(&world.pool, "1").await.unwrap().is_processed());
    assert!(handlers::record(&world.pool, "1").await.unwrap().is_duplicate());
    let ended = handlers::scripted(&world.pool, "2", &[Step::Effect, Step::Try("COMMIT")]).await;
    assert!(matches!(ended, Err(Error::TransactionLost(lost)) if lost.claim_kept()));
}

#[tokio::test]
async fn a_table_without_the_index_of_the_purge_is_not_migrated() {
    let world = World::new().await;
    world.run("ALTER TABLE processed_messages DROP INDEX expires_at").await;
    let error = ClaimStore::new(world.pool.clone()).purge(PurgeOptions::new()).await.unwrap_err();
    assert!(matches!(error, Error::NotMigrated { .. }), "{error:?}");
}

#[tokio::test]
async fn the_sessions_time_zone_changes_nothing() {
    let world = World::with_connections(1).await;
    let store = ClaimStore::new(world.pool.clone());
    for (index, zone) in ["+13:00", "-12:00", "+00:00"].into_iter().enumerate() {
        let set = format!("SET time_zone = '{zone}'");
        world.pool.execute(sqlx::AssertSqlSafe(set)).await.unwrap();
        let id = index.to_string();
        assert!(handlers::record_for_three_seconds(&world.pool, &id).await.unwrap().is_processed());
        let expires = store.find("tests.record_for_three_seconds", "", &id).await.unwrap().unwrap();
        let left = expires.duration_since(std::time::SystemTime::now()).unwrap().as_secs_f64();
        assert!((0.0..3.5).contains(&left), "{zone}: {left} s left");
    }
}

#[tokio::test]
async fn a_rival_that_holds_the_key_for_longer_than_the_engine_waits_is_in_progress() {
    let world = World::with_connections(2).await;
    let hurried = crate::harness::connect(&world.fresh, 1).await;
    hurried.execute("SET SESSION innodb_lock_wait_timeout = 1").await.unwrap();
    let mut rival = world.pool.begin().await.unwrap();
    assert!(handlers::record(&mut rival, "1").await.unwrap().is_processed());
    let error = Error::from(handlers::record(&hurried, "1").await.unwrap_err());
    assert!(matches!(error, Error::InProgress(_)), "{error:?}");
    assert_eq!((error.http_status(), error.is_transient()), (409, true));
    rival.rollback().await.unwrap();
    assert!(handlers::record(&hurried, "1").await.unwrap().is_processed());
}

#[tokio::test]
async fn errors_are_judged_by_their_number() {
    let world = World::with_connections(1).await;
    // deadlock, lock wait, snapshot isolation, read-only, a time-out; then: duplicate entry, out of range
    for (number, transient) in
        [(1213, true), (1205, true), (1020, true), (1290, true), (1969, true), (1062, false), (1264, false)]
    {
        let state = if number == 1062 { "23000" } else { "22003" };
        let state = if transient { "HY000" } else { state };
        let signal = format!("SIGNAL SQLSTATE '{state}' SET MYSQL_ERRNO = {number}");
        let error = handlers::scripted(&world.pool, "1", &[Step::Effect, Step::Run(&signal)]).await.unwrap_err();
        assert!(matches!(error, Error::Database(_)), "{number}: {error:?}");
        assert_eq!(error.is_transient(), transient, "{number}: {error:?}");
        assert_eq!((world.effects().await, world.claims().await), (0, 0), "{number}");
    }
}

#[tokio::test]
async fn a_duplicate_leaves_nothing_in_the_log() {
    let world = World::with_connections(1).await;
    assert!(handlers::record(&world.pool, "1").await.unwrap().is_processed());
    for _ in 0..20 {
        assert!(handlers::record(&world.pool, "1").await.unwrap().is_duplicate());
    }
    let Some(log) = world.fresh.log() else { return }; // said loudly
    assert!(!log.contains("Duplicate entry"), "{log}");
}
