//! Handlers in their caller's transaction, on a bare connection, and inside one another (D12).

use idempotent_runtime::{ClaimStore, Error, Outcome, commit};
use sqlx::Connection as _;

use crate::handlers::{self, Step};
use crate::harness::World;
use crate::{Connection, ERROR_ABORTS};

#[tokio::test]
async fn a_joined_handler_holds_once_its_caller_commits() {
    let world = World::with_connections(1).await;
    for (committed, expected) in [(false, 0), (true, 1)] {
        let mut tx = world.pool.begin().await.unwrap();
        assert!(handlers::record(&mut tx, "1").await.unwrap().is_processed());
        assert!(handlers::record(&mut *tx, "1").await.unwrap().is_duplicate(), "its own claim is seen at once");
        assert_eq!(world.effects().await, 0, "nothing before the commit");
        if committed {
            commit(tx).await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        assert_eq!((world.effects().await, world.claims().await), (expected, expected));
    }
}

#[tokio::test]
async fn a_joined_handler_that_fails_undoes_itself_alone() {
    let world = World::with_connections(1).await;
    world.run("INSERT INTO singles (id) VALUES ('taken')").await;
    let violation = Step::Run("INSERT INTO singles (id) VALUES ('taken')");
    let mut tx = world.pool.begin().await.unwrap();
    handlers::effect(&mut tx, "before").await.unwrap();
    for steps in [[Step::Effect, Step::Fail], [Step::Effect, violation]] {
        assert!(handlers::scripted(&mut tx, "1", &steps).await.is_err());
    }
    handlers::effect(&mut tx, "after").await.unwrap();
    assert!(handlers::record(&mut tx, "2").await.unwrap().is_processed());
    commit(tx).await.unwrap();
    assert_eq!((world.effects_of("before").await, world.effects_of("after").await), (1, 1));
    assert_eq!((world.effects_of("1").await, world.effects_of("2").await, world.claims().await), (0, 1, 1));
}

#[tokio::test]
async fn a_swallowed_error_in_a_joined_handler_never_reaches_its_caller() {
    let world = World::with_connections(1).await;
    world.run("INSERT INTO singles (id) VALUES ('taken')").await;
    let swallowed = [Step::Effect, Step::Try("INSERT INTO singles (id) VALUES ('taken')")];
    let mut tx = world.pool.begin().await.unwrap();
    handlers::effect(&mut tx, "before").await.unwrap();
    let outcome = handlers::scripted(&mut tx, "1", &swallowed).await;
    if ERROR_ABORTS {
        assert!(matches!(outcome, Err(Error::TransactionLost(lost)) if !lost.claim_kept()));
    } else {
        assert!(outcome.unwrap().is_processed());
    }
    handlers::effect(&mut tx, "after").await.unwrap();
    commit(tx).await.unwrap();
    let stayed = i64::from(!ERROR_ABORTS);
    assert_eq!((world.effects_of("1").await, world.claims().await), (stayed, stayed));
    assert_eq!((world.effects_of("before").await, world.effects_of("after").await), (1, 1));
}

#[tokio::test]
async fn a_handler_calls_another_in_its_own_transaction_on_a_pool_of_one_connection() {
    let world = World::with_connections(1).await;
    assert_eq!(handlers::outer(&world.pool, "1", &[Step::Effect]).await.unwrap(), Outcome::Processed(true));
    assert!(handlers::outer(&world.pool, "1", &[Step::Effect]).await.unwrap().is_duplicate());
    // outer, inner, and the record that both share
    assert_eq!((world.effects().await, world.claims().await), (3, 3));
    assert_eq!(
        handlers::outer(&world.pool, "2", &[Step::Effect, Step::Fail]).await.unwrap(),
        Outcome::Processed(false)
    );
    assert_eq!((world.effects().await, world.claims().await), (5, 5));
}

#[tokio::test]
async fn an_inner_handler_that_loses_the_transaction_takes_the_outer_one_with_it() {
    let world = World::with_connections(1).await;
    let outcome = handlers::outer(&world.pool, "1", &[Step::Effect, Step::Try("ROLLBACK")]).await;
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    assert!(handlers::outer(&world.pool, "1", &[Step::Effect]).await.unwrap().is_processed());
}

#[tokio::test]
async fn a_bare_connection_begins_its_own_transaction_and_one_in_a_transaction_is_joined() {
    let world = World::with_connections(2).await;
    let mut connection: Connection = world.pool.acquire().await.unwrap().detach();
    assert!(handlers::record(&mut connection, "own").await.unwrap().is_processed());
    assert_eq!(world.effects_of("own").await, 1, "committed at once");
    assert!(handlers::record(&mut connection, "own").await.unwrap().is_duplicate());
    assert!(handlers::scripted(&mut connection, "fails", &[Step::Effect, Step::Fail]).await.is_err());
    assert!(handlers::scripted(&mut connection, "lost", &[Step::Effect, Step::Try("ROLLBACK")]).await.is_err());

    let mut tx = connection.begin().await.unwrap();
    assert!(handlers::record(&mut *tx, "joined").await.unwrap().is_processed());
    assert!(handlers::record(&mut tx, "own").await.unwrap().is_duplicate());
    assert_eq!(world.effects_of("joined").await, 0, "the caller has not committed");
    commit(tx).await.unwrap();
    assert_eq!(world.effects_of("joined").await, 1);

    let mut pooled = world.pool.acquire().await.unwrap();
    assert!(handlers::record(&mut pooled, "pooled").await.unwrap().is_processed());
    assert_eq!(world.effects_of("pooled").await, 1);
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_savepoint_of_the_callers_own_is_joined_too() {
    let world = World::with_connections(1).await;
    let mut tx = world.pool.begin().await.unwrap();
    {
        let mut savepoint = tx.begin().await.unwrap();
        assert!(handlers::record(&mut savepoint, "kept").await.unwrap().is_processed());
        savepoint.commit().await.unwrap();
    }
    {
        let mut savepoint = tx.begin().await.unwrap();
        assert!(handlers::record(&mut savepoint, "undone").await.unwrap().is_processed());
        savepoint.rollback().await.unwrap();
    }
    assert!(handlers::record(&mut tx, "undone").await.unwrap().is_processed());
    commit(tx).await.unwrap();
    assert_eq!((world.effects_of("kept").await, world.effects_of("undone").await), (1, 1));
}

#[tokio::test]
async fn a_store_with_a_table_of_its_own_shares_nothing_with_the_default_one() {
    let world = World::with_connections(1).await;
    let store = ClaimStore::builder(world.pool.clone()).table("claims_of_billing").build().unwrap();
    let error = Error::from(handlers::record(&store, "1").await.unwrap_err());
    assert!(matches!(&error, Error::NotMigrated { table, .. } if table == "claims_of_billing"), "{error:?}");
    store.migrate().await.unwrap();
    store.migrate().await.unwrap();
    assert!(handlers::record(&store, "1").await.unwrap().is_processed());
    assert!(handlers::record(&world.pool, "1").await.unwrap().is_processed());
    let mut tx = world.pool.begin().await.unwrap();
    assert!(handlers::record(store.join(&mut tx), "1").await.unwrap().is_duplicate());
    assert!(handlers::record(store.join(&mut tx), "2").await.unwrap().is_processed());
    commit(tx).await.unwrap();
    assert_eq!(world.number("SELECT count(*) FROM claims_of_billing").await, 2);
    assert_eq!(world.claims().await, 1);
}

#[tokio::test]
async fn commit_reports_a_transaction_that_an_error_has_aborted() {
    let world = World::with_connections(1).await;
    world.run("INSERT INTO singles (id) VALUES ('taken')").await;
    let mut tx = world.pool.begin().await.unwrap();
    handlers::effect(&mut tx, "1").await.unwrap();
    let violation = sqlx::query("INSERT INTO singles (id) VALUES ('taken')").execute(&mut *tx).await;
    assert!(violation.is_err());
    let committed = commit(tx).await;
    if ERROR_ABORTS {
        assert!(matches!(committed, Err(Error::TransactionLost(_))), "{committed:?}");
    } else {
        committed.unwrap();
    }
    assert_eq!(world.effects_of("1").await, i64::from(!ERROR_ABORTS));
    let tx = world.pool.begin().await.unwrap();
    commit(tx).await.expect("a transaction that did nothing commits");
}

#[tokio::test]
async fn commit_reports_a_transaction_that_is_gone() {
    let world = World::with_connections(1).await;
    let mut tx = world.pool.begin().await.unwrap();
    handlers::effect(&mut tx, "1").await.unwrap();
    sqlx::query("ROLLBACK").execute(&mut *tx).await.unwrap();
    assert!(matches!(commit(tx).await, Err(Error::TransactionLost(_))));
    assert!(handlers::record(&world.pool, "other").await.unwrap().is_processed());
}
