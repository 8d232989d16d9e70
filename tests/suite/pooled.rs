//! PgBouncer in transaction mode between the pool and the server (D14): many connections of clients share few of the server's,
//! which hear one transaction of this client and the next one of another.

use std::time::Duration;

use idempotent_runtime::{ClaimStore, Error, Outcome, PurgeOptions, commit};
use servers::PgBouncer;
use sqlx::pool::PoolOptions;
use tokio::task::JoinSet;

use crate::Db;
use crate::handlers::{self, Step};
use crate::harness::{World, drop_after, rounds};
use crate::{ordered, replayed};

const SERVER_CONNECTIONS: u32 = 3;

/// A store through the pooler. Its statements have no names, which PgBouncer before 1.21 gives to the wrong client.
async fn through(bouncer: &PgBouncer, connections: u32) -> ClaimStore<Db> {
    let pool = PoolOptions::new().max_connections(connections).acquire_timeout(Duration::from_secs(20));
    let pool = pool.connect(bouncer.url()).await.expect("the pooler");
    ClaimStore::builder(pool).named_statements(false).build().expect("a store")
}

/// Delivers until it is acknowledged, with handlers that fail and futures that are dropped on the way.
async fn deliver(store: ClaimStore<Db>, number: usize) -> Result<usize, Error> {
    let id = format!("pooled-{number}");
    let steps: &[Step<'_>] = &[Step::Effect, Step::Fail];
    let mut processed = 0;
    for attempt in 0.. {
        let outcome = match fastrand::u8(0..4) {
            0 if attempt < 5 => {
                drop_after(fastrand::usize(1..25), handlers::scripted(&store, &id, &[Step::Effect])).await
            }
            1 if attempt < 5 => Some(handlers::scripted(&store, &id, steps).await),
            _ => Some(handlers::scripted(&store, &id, &[Step::Effect]).await),
        };
        match outcome {
            Some(Ok(outcome)) => {
                processed += usize::from(outcome.is_processed());
                break;
            }
            Some(Err(Error::Database(sqlx::Error::RowNotFound))) | None => {}
            Some(Err(error)) => return Err(error),
        }
    }
    // What the handler of two requests outside a transaction would be sent to two sessions for.
    assert!(store.find("tests.scripted", "", &id).await?.is_some());
    let order = format!("order-{number}");
    ordered::consume(&store, &order, 0, 1).await?;
    assert_eq!(store.position("ordered.consume", "", &format!("{order}/0")).await?, Some(1));
    replayed::charge(&store, &order, "answer").await?;
    assert!(matches!(replayed::charge(&store, &order, "another").await?, Outcome::Replayed(_)));
    if number.is_multiple_of(5) {
        store.purge(PurgeOptions::new()).await?;
    }
    Ok(processed)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_pgbouncer_in_transaction_mode_everything_works() {
    let world = World::new().await;
    let bouncer = PgBouncer::start(&crate::url(&world.fresh), SERVER_CONNECTIONS).await;
    let store = through(&bouncer, 12).await;
    store.migrate().await.expect("there already");
    let messages = rounds(60, 1_000);
    let mut running = JoinSet::new();
    for number in 0..messages * 2 {
        running.spawn(deliver(store.clone(), number % messages));
    }
    while let Some(delivered) = running.join_next().await {
        delivered.expect("no panic").expect("no error");
    }
    let pooled = "SELECT count(*) FROM effects WHERE id LIKE 'pooled-%'";
    assert_eq!(world.number(pooled).await, i64::try_from(messages).expect("a few"));
    println!("{messages} messages, twice each, behind PgBouncer");
    assert_eq!(world.number("SELECT count(*) - count(DISTINCT id) FROM effects").await, 0);

    let swallowed = handlers::scripted(&store, "lost", &[Step::Effect, Step::Try("SELECT nothing")]).await;
    assert!(matches!(swallowed, Err(Error::TransactionLost(_))), "{swallowed:?}");
    let mut tx = store.pool().begin().await.unwrap();
    assert!(handlers::record(store.join(&mut tx), "joined").await.unwrap().is_processed());
    commit(tx).await.unwrap();
    assert!(handlers::record(&store, "joined").await.unwrap().is_duplicate());
    assert!(store.forget("tests.record", "", "joined").await.unwrap());

    let abandoned = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
    let mut patience = 100;
    while world.number(abandoned).await > 0 && patience > 0 {
        patience -= 1;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(world.number(abandoned).await, 0, "no session was left in a transaction");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_pgbouncer_a_future_dropped_at_any_poll_leaves_one_effect_and_a_sound_session() {
    let world = World::new().await;
    let bouncer = PgBouncer::start(&crate::url(&world.fresh), 1).await;
    let store = through(&bouncer, 1).await;
    for polls in 1..60 {
        let id = format!("dropped-{polls}");
        drop_after(polls, handlers::record(&store, &id)).await;
        handlers::record(&store, &id).await.expect("no error");
        assert_eq!(world.effects_of(&id).await, 1, "after {polls} polls");
    }
}
