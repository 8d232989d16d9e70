//! What only PostgreSQL can do to a handler, and what it writes to its log (G9, G13, D3, D16).

use std::time::Duration;

use idempotent_runtime::{ClaimStore, Error, Janitor, PurgeOptions, commit};
use sqlx::Executor as _;
use tokio::task::JoinSet;

use crate::handlers::{self, Step};
use crate::harness::World;

#[path = "deadlock.rs"]
mod deadlock;
#[path = "deferred.rs"]
mod deferred;

#[tokio::test]
async fn a_duplicate_leaves_no_error_in_the_log_and_no_dead_row() {
    let world = World::with_connections(1).await;
    assert!(handlers::record(&world.pool, "1").await.unwrap().is_processed());
    for _ in 0..20 {
        assert!(handlers::record(&world.pool, "1").await.unwrap().is_duplicate());
    }
    let mut tx = world.pool.begin().await.unwrap();
    for _ in 0..20 {
        assert!(handlers::record(&mut tx, "1").await.unwrap().is_duplicate());
    }
    commit(tx).await.unwrap();
    // Without a log this is said loudly.
    if let Some(log) = world.fresh.log() {
        assert!(!log.contains("ERROR") && !log.contains("WARNING"), "{log}");
    }
    world.run("CREATE EXTENSION IF NOT EXISTS pgstattuple").await;
    assert_eq!(world.number("SELECT dead_tuple_count FROM pgstattuple('processed_messages')").await, 0);
    assert_eq!(world.number("SELECT dead_tuple_count FROM pgstattuple('effects')").await, 0);
}

#[tokio::test]
async fn purging_leaves_nothing_in_the_log() {
    let world = World::new().await;
    world.add_claims("old", 500, -7_200_000).await;
    let pool = crate::pool_with_isolation(&world.fresh, "serializable").await;
    let options = PurgeOptions::new().batch_size(5).pause(Duration::ZERO);
    let mut purgers = JoinSet::new();
    for _ in 0..4 {
        let (store, options) = (ClaimStore::new(pool.clone()), options.clone());
        purgers.spawn(async move { store.purge(options).await });
    }
    assert!(purgers.join_all().await.into_iter().all(|purged| purged.is_ok()));
    world.add_claims("old", 100, -7_200_000).await;
    let janitor = Janitor::new(ClaimStore::new(pool)).every(Duration::from_millis(100)).options(options);
    let janitor = janitor.spawn();
    while world.claims().await > 0 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    janitor.shutdown().await;
    if let Some(log) = world.fresh.log() {
        assert!(!log.contains("ERROR") && !log.contains("WARNING"), "{log}");
    }
}

/// An application with a schema of its own, before a shared one where somebody else has a table of this name.
#[tokio::test]
async fn another_table_of_the_name_in_another_schema_of_the_path_is_not_in_the_way() {
    let world = World::not_migrated(1).await;
    let path = async |path: &'static str| world.pool.execute(path).await.expect("the one connection's path");
    world.run("CREATE SCHEMA app").await;
    path("SET search_path = app, public").await;
    world.run("CREATE TABLE public.processed_messages (id text PRIMARY KEY)").await;
    idempotent_runtime::migrate(&world.pool).await.expect("in the schema of its own");
    idempotent_runtime::migrate(&world.pool).await.expect("once more changes nothing");
    assert_eq!(world.number("SELECT count(*) FROM app.processed_messages").await, 0);
    path("SET search_path = public, app").await;
    let error = idempotent_runtime::migrate(&world.pool).await.expect_err("there the name is taken");
    assert!(matches!(&error, Error::Configuration(text) if text.contains("`public.processed_messages`")), "{error:?}");
}

#[tokio::test]
async fn the_sessions_time_zone_changes_nothing() {
    let world = World::with_connections(1).await;
    let store = ClaimStore::new(world.pool.clone());
    for (index, zone) in ["Pacific/Kiritimati", "Etc/GMT+12", "America/New_York", "UTC"].into_iter().enumerate() {
        let set = format!("SET TIME ZONE '{zone}'");
        world.pool.execute(sqlx::AssertSqlSafe(set)).await.unwrap();
        let id = index.to_string();
        assert!(handlers::record_for_three_seconds(&world.pool, &id).await.unwrap().is_processed());
        let expires = store.find("tests.record_for_three_seconds", "", &id).await.unwrap().unwrap();
        let left = expires.duration_since(std::time::SystemTime::now()).unwrap().as_secs_f64();
        assert!((0.0..3.5).contains(&left), "{zone}: {left} s left");
    }
}

#[tokio::test]
async fn messages_in_another_language_change_nothing() {
    let world = World::not_migrated(1).await;
    let german = world.pool.execute("SET lc_messages TO 'de_DE.UTF-8'").await;
    german
        .expect("the server knows German: `localedef -i de_DE -f UTF-8 de_DE.UTF-8` where it runs, and start it again");
    let error = Error::from(handlers::record(&world.pool, "1").await.unwrap_err());
    let Error::NotMigrated { source, .. } = error else { panic!("{error:?}") };
    assert!(source.to_string().contains("existiert nicht"), "{source}");

    idempotent_runtime::migrate(&world.pool).await.unwrap();
    world.run("CREATE TABLE effects (id VARCHAR(100) NOT NULL)").await;
    assert!(handlers::record(&world.pool, "1").await.unwrap().is_processed());
    assert!(handlers::record(&world.pool, "1").await.unwrap().is_duplicate());
    let swallowed = handlers::scripted(&world.pool, "2", &[Step::Effect, Step::Try("SELEC")]).await;
    assert!(matches!(swallowed, Err(Error::TransactionLost(lost)) if !lost.claim_kept()));
    let ended = handlers::scripted(&world.pool, "3", &[Step::Effect, Step::Try("COMMIT")]).await;
    assert!(matches!(ended, Err(Error::TransactionLost(lost)) if lost.claim_kept()));
}

/// Two transactions that each read what the other writes: under serializable isolation one of them cannot commit.
#[tokio::test]
async fn a_serialization_failure_at_commit_is_known_and_transient() {
    let world = World::new().await;
    let pool = crate::pool_with_isolation(&world.fresh, "serializable").await;
    let mut transient = 0;
    for round in 0..5 {
        let script = [
            Step::Run("SELECT count(*) FROM effects"),
            Step::Run("SELECT pg_sleep(0.1)"),
            Step::Effect,
            Step::Run("SELECT pg_sleep(0.1)"),
        ];
        let mut deliveries = JoinSet::new();
        for side in ["a", "b"] {
            let pool = pool.clone();
            deliveries.spawn(async move {
                let id = format!("{side}-{round}");
                (handlers::scripted(&pool, &id, &script).await, id)
            });
        }
        for (outcome, id) in deliveries.join_all().await {
            if let Err(error) = outcome {
                assert!(error.is_transient(), "{error:?}");
                assert!(!matches!(error, Error::CommitUnknown(_)), "a conflict is known: {error:?}");
                assert_eq!(world.effects_of(&id).await, 0);
                transient += 1;
            }
        }
    }
    assert!(transient > 0, "this test provokes serialization failures");
}

#[tokio::test]
async fn a_handler_on_a_connection_type_works_as_on_a_transaction_type() {
    use idempotent_runtime::idempotent;

    #[idempotent(key = "{id}")]
    async fn on_connection(tx: &mut sqlx::PgConnection, id: i64) -> anyhow::Result<i64> {
        tx.execute("INSERT INTO effects (id) VALUES ('on-connection')").await?;
        Ok(id * 2)
    }

    let world = World::with_connections(1).await;
    assert_eq!(on_connection(&world.pool, 21).await.unwrap().value(), Some(42));
    assert!(on_connection(&world.pool, 21).await.unwrap().is_duplicate());
    assert_eq!(world.effects().await, 1);
}

/// A deferred trigger makes COMMIT report any SQLSTATE.
#[tokio::test]
async fn what_commit_reports_is_judged_by_its_sqlstate() {
    let world = World::with_connections(1).await;
    world.run("CREATE TABLE states (code TEXT NOT NULL)").await;
    world
        .run(
            "CREATE FUNCTION report() RETURNS trigger LANGUAGE plpgsql AS \
             $$ BEGIN RAISE EXCEPTION 'at commit' USING ERRCODE = NEW.code; END $$",
        )
        .await;
    world
        .run(
            "CREATE CONSTRAINT TRIGGER later AFTER INSERT ON states DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION report()",
        )
        .await;
    // (SQLSTATE, unknown, transient)
    for (code, unknown, transient) in [
        ("40001", false, true),
        ("40P01", false, true),
        ("55P03", false, true),
        ("57014", false, true),
        ("40003", true, true),
        ("57P01", true, true),
        ("57P03", true, true),
        ("08006", true, true),
        ("23514", false, false),
        ("22003", false, false),
    ] {
        let insert = format!("INSERT INTO states VALUES ('{code}')");
        let error = handlers::scripted(&world.pool, code, &[Step::Effect, Step::Run(&insert)]).await.unwrap_err();
        assert_eq!(matches!(error, Error::CommitUnknown(_)), unknown, "{code}: {error:?}");
        assert_eq!(error.is_transient(), transient, "{code}: {error:?}");
        assert_eq!((world.effects().await, world.claims().await), (0, 0), "{code}");
    }
}

/// The proof is a cursor, and whoever closes all closes it too: that is told, and leaves nothing.
#[tokio::test]
async fn a_body_that_closes_all_cursors_is_told_and_leaves_nothing() {
    let world = World::with_connections(1).await;
    let error = handlers::scripted(&world.pool, "1", &[Step::Effect, Step::Run("CLOSE ALL")]).await.unwrap_err();
    assert!(matches!(&error, Error::TransactionLost(lost) if !lost.claim_kept()), "{error:?}");
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    let cursor = "DECLARE mine CURSOR FOR SELECT 1";
    let steps = [Step::Run(cursor), Step::Run("FETCH mine"), Step::Effect, Step::Run("CLOSE mine")];
    assert!(handlers::scripted(&world.pool, "1", &steps).await.unwrap().is_processed());
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
}
