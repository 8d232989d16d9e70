//! What goes wrong around a handler: runtimes that are shut down, servers that refuse, time-outs. Nothing is taken
//! for a duplicate, nothing stays half, and once the cause is gone the redelivery runs.

use std::time::Duration;

use idempotent_runtime::{Disposition, Error};
use servers::Kind;
use sqlx::AssertSqlSafe;
use sqlx::pool::PoolOptions;

use crate::handlers::{self, Step, effect};
use crate::harness::{World, connect, connect_with, rounds};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

#[test]
fn a_runtime_that_is_shut_down_inside_a_handler_leaves_neither_claim_nor_effect() {
    static STEPS: [Step<'static>; 2] = [Step::Effect, Step::Hang];
    let outside = runtime();
    let world = outside.block_on(World::with_connections(1));
    for round in 0..rounds(8, 100) {
        let id = format!("round-{round}");
        let dying = runtime();
        let pool = dying.block_on(connect(&world.fresh, 1));
        dying.spawn({
            let id = id.clone();
            async move { handlers::scripted(&pool, &id, &STEPS).await }
        });
        // While it connects, begins or claims, and in its body.
        std::thread::sleep(Duration::from_millis(u64::try_from(round % 4).expect("few") * 20));
        if round % 2 == 0 {
            drop(dying);
        } else {
            dying.shutdown_background();
        }
        let redelivered = outside.block_on(handlers::scripted(&world.pool, &id, &[Step::Effect]));
        assert!(redelivered.expect("no error").is_processed(), "{id}");
        assert_eq!(outside.block_on(world.effects_of(&id)), 1, "{id}");
    }
    let _inside = outside.enter();
    drop(world);
}

#[tokio::test]
async fn a_database_that_can_only_be_read_is_an_error_to_be_retried() {
    let world = World::new().await;
    let set = match world.fresh.kind() {
        Kind::Postgres => "SET default_transaction_read_only = on",
        Kind::Mariadb => "SET SESSION TRANSACTION READ ONLY",
        Kind::Sqlite => "PRAGMA query_only = on",
    };
    let read_only = connect_with(&world.fresh, 1, set.to_owned()).await;
    for _ in 0..3 {
        let error = Error::from(handlers::record(&read_only, "1").await.expect_err("it cannot be written"));
        assert_eq!(error.disposition(), Disposition::Retry, "{error:?}");
    }
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    assert!(handlers::record(&world.pool, "1").await.expect("no error").is_processed());
    assert!(handlers::record(&world.pool, "1").await.expect("no error").is_duplicate());
}

#[tokio::test]
async fn a_statement_that_takes_too_long_undoes_everything_or_is_the_bodys_own_business() {
    let world = World::new().await;
    let (set, slow) = match world.fresh.kind() {
        Kind::Postgres => ("SET statement_timeout = '200ms'", "SELECT pg_sleep(3)"),
        Kind::Mariadb => {
            ("SET max_statement_time = 0.2", "SELECT count(*) FROM effects, effects AS e WHERE SLEEP(3) = 0")
        }
        Kind::Sqlite => return, // it has no such time-out
    };
    world.run("INSERT INTO effects (id) VALUES ('there')").await;
    let pool = connect_with(&world.fresh, 1, set.to_owned()).await;
    let error = handlers::scripted(&pool, "1", &[Step::Effect, Step::Run(slow)]).await.expect_err("it takes too long");
    assert!(error.is_transient(), "{error:?}");
    assert_eq!((world.effects_of("1").await, world.claims().await), (0, 0));
    let swallowed = handlers::scripted(&pool, "1", &[Step::Effect, Step::Try(slow)]).await;
    assert_eq!(swallowed.is_ok(), !crate::ERROR_ABORTS, "{swallowed:?}");
    assert_eq!(world.effects_of("1").await, i64::from(swallowed.is_ok()));
    assert!(handlers::scripted(&world.pool, "2", &[Step::Effect]).await.expect("no error").is_processed());
}

#[tokio::test]
async fn a_lock_that_the_body_waits_for_too_long_undoes_everything() {
    let world = World::new().await;
    let set = match world.fresh.kind() {
        Kind::Postgres => "SET lock_timeout = '200ms'",
        Kind::Mariadb => "SET innodb_lock_wait_timeout = 1",
        Kind::Sqlite => return, // one lock for the whole database, which the handler has by then
    };
    world.run("INSERT INTO singles (id) VALUES ('held')").await;
    let pool = connect_with(&world.fresh, 1, set.to_owned()).await;
    let waiting = [Step::Effect, Step::Run("UPDATE singles SET id = 'held-2' WHERE id = 'held'")];
    let mut holder = world.pool.begin().await.expect("a transaction");
    sqlx::query("SELECT id FROM singles WHERE id = 'held' FOR UPDATE").fetch_one(&mut *holder).await.expect("locked");
    let error = handlers::scripted(&pool, "1", &waiting).await.expect_err("it is held");
    assert!(error.is_transient() && !matches!(error, Error::InProgress(_)), "{error:?}");
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    holder.rollback().await.expect("released");
    assert!(handlers::scripted(&pool, "1", &waiting).await.expect("no error").is_processed());
    assert_eq!((world.effects_of("1").await, world.claims().await), (1, 1));
}

#[tokio::test]
async fn without_a_connection_a_message_is_to_be_retried() {
    let world = World::new().await;
    let impatient = PoolOptions::new().max_connections(1).acquire_timeout(Duration::from_millis(300));
    let pool = impatient.connect(&crate::url(&world.fresh)).await.expect("the database");
    let held = pool.acquire().await.expect("the only connection");
    let error = Error::from(handlers::record(&pool, "1").await.expect_err("no connection"));
    assert_eq!((error.is_transient(), error.disposition(), error.http_status()), (true, Disposition::Retry, 503));
    drop(held);
    assert!(handlers::record(&pool, "1").await.expect("no error").is_processed());
}

#[tokio::test]
async fn a_server_that_takes_no_more_connections_is_an_error_to_be_retried() {
    let world = World::new().await;
    let name = world.fresh.name();
    let (create, drop_again) = match world.fresh.kind() {
        Kind::Postgres => (
            format!(
                "CREATE ROLE {name} LOGIN PASSWORD 'limited' CONNECTION LIMIT 1; \
                 GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}"
            ),
            format!("DROP OWNED BY {name}; DROP ROLE {name}"),
        ),
        Kind::Mariadb => (
            format!(
                "CREATE USER {name}@'%' IDENTIFIED BY 'limited' WITH MAX_USER_CONNECTIONS 1; \
                 GRANT ALL ON {name}.* TO {name}@'%'"
            ),
            format!("DROP USER {name}@'%'"),
        ),
        Kind::Sqlite => return, // nobody counts
    };
    if sqlx::Executor::execute(&world.observer, AssertSqlSafe(create)).await.is_err() {
        eprintln!("SKIPPED: no right to create an account whose connections are limited");
        let _ = sqlx::Executor::execute(&world.observer, AssertSqlSafe(drop_again)).await;
        return;
    }
    let mut url = url::Url::parse(&crate::url(&world.fresh)).expect("a URL");
    url.set_username(name).and_then(|()| url.set_password(Some("limited"))).expect("an account");
    let pool = PoolOptions::new().max_connections(2).acquire_timeout(Duration::from_secs(1)).min_connections(0);
    let pool = pool.connect(url.as_str()).await.expect("the database");
    let held = pool.acquire().await.expect("the only connection");
    let error = Error::from(handlers::record(&pool, "1").await.expect_err("no more connections"));
    assert!(error.is_transient() && error.disposition() == Disposition::Retry, "{error:?}");
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    drop(held);
    while pool.num_idle() != 1 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(handlers::record(&pool, "1").await.expect("no error").is_processed());
    pool.close().await;
    world.run(&drop_again).await;
}

/// What is left in a pool's connection by a handler that panics at any of its awaits.
#[tokio::test]
async fn a_panic_before_and_after_any_statement_leaves_a_sound_connection() {
    let world = World::with_connections(1).await;
    let scripts: [&'static [Step<'static>]; 5] = [
        &[Step::Panic],
        &[Step::Effect, Step::Panic],
        &[Step::Try("SELECT nothing"), Step::Panic],
        &[Step::Forget, Step::Panic],
        &[Step::Effect, Step::Try("ROLLBACK"), Step::Panic],
    ];
    for (number, script) in scripts.into_iter().enumerate() {
        let (pool, id) = (world.pool.clone(), format!("panic-{number}"));
        let panicked = tokio::spawn({
            let id = id.clone();
            async move { handlers::scripted(&pool, &id, script).await }
        });
        assert!(panicked.await.expect_err("a panic").is_panic());
        assert_eq!(world.effects_of(&id).await, 0, "{id}");
        assert!(handlers::scripted(&world.pool, &id, &[Step::Effect]).await.expect("no error").is_processed(), "{id}");
        assert_eq!(world.effects_of(&id).await, 1, "{id}");
        let mut tx = world.pool.begin().await.expect("no error");
        effect(&mut tx, &format!("{id}-plain")).await.expect("no error");
        assert_eq!(world.effects_of(&format!("{id}-plain")).await, 0, "{id}");
        tx.rollback().await.expect("no error");
    }
}

/// Without the pool's ping nobody but the handler finds them.
#[tokio::test]
async fn connections_that_have_died_in_a_pool_without_a_ping_cost_no_delivery() {
    const CONNECTIONS: u32 = 24;
    let world = World::new().await;
    let sessions = match world.fresh.kind() {
        Kind::Postgres => {
            "SELECT pg_terminate_backend(pid)::text FROM pg_stat_activity \
             WHERE datname = current_database() AND pid <> pg_backend_pid()"
        }
        Kind::Mariadb => {
            "SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()"
        }
        Kind::Sqlite => return, // which has no sessions
    };
    let options = PoolOptions::new().max_connections(CONNECTIONS).min_connections(CONNECTIONS);
    let pool = options.test_before_acquire(false).connect(&crate::url(&world.fresh)).await.expect("a pool");
    for delivery in 0..3 {
        while pool.num_idle() != CONNECTIONS as usize {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for statement in world.fresh.ask(sessions).await.expect("the sessions") {
            if world.fresh.kind() == Kind::Mariadb {
                // A session may be gone already.
                let _ = world.fresh.ask(&statement).await;
            }
        }
        let outcome = handlers::record(&pool, &delivery.to_string()).await;
        assert!(outcome.expect("no error").is_processed());
    }
    assert_eq!(world.effects().await, 3);
}
