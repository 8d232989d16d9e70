//! Err, a panic, or a future dropped at any await: neither claim nor effect, and a healthy pool (G3, D2).

use std::time::Duration;

use idempotent_runtime::commit;
use sqlx::{AssertSqlSafe, Executor as _};

use crate::handlers::{self, Step};
use crate::harness::{World, drop_after};

/// What the application does on the same pool without handlers is durable too: no transaction and no setting was left.
async fn plain_use_is_sound(world: &World, tag: &str) {
    let (statement, transaction) = (format!("statement-{tag}"), format!("transaction-{tag}"));
    let insert = format!("INSERT INTO effects (id) VALUES ('{statement}')");
    world.pool.execute(AssertSqlSafe(insert)).await.expect("no error");
    assert_eq!(world.effects_of(&statement).await, 1, "{tag}: a statement of its own commits");
    let mut tx = world.pool.begin_with("BEGIN").await.expect("no error");
    handlers::effect(&mut tx, &transaction).await.expect("no error");
    assert_eq!(world.effects_of(&transaction).await, 0, "{tag}: not before the commit");
    tx.commit().await.expect("no error");
    assert_eq!(world.effects_of(&transaction).await, 1, "{tag}: a transaction commits");
}

/// More polls than any handler needs.
const MOST_POLLS: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_future_leaves_neither_claim_nor_effect_and_a_healthy_pool() {
    let world = World::with_connections(1).await;
    let mut finished = 0;
    for polls in 1..=MOST_POLLS {
        let id = format!("dropped-{polls}");
        finished += usize::from(drop_after(polls, handlers::record(&world.pool, &id)).await.is_some());
        plain_use_is_sound(&world, &id).await;
        // The next handler on that one connection does durable work, seen from outside.
        let next = format!("next-{polls}");
        let outcome = tokio::time::timeout(Duration::from_secs(20), handlers::record(&world.pool, &next)).await;
        assert!(outcome.expect("the connection is stuck").expect("no error").is_processed(), "after {polls} polls");
        assert_eq!(world.effects_of(&next).await, 1, "after {polls} polls");
        // Both or neither, whatever the moment; and whatever the moment, redelivering settles it.
        let stayed = world.effects_of(&id).await;
        let redelivered = handlers::record(&world.pool, &id).await.expect("no error");
        assert_eq!(redelivered.is_duplicate(), stayed == 1, "after {polls} polls");
        assert_eq!(world.effects_of(&id).await, 1, "after {polls} polls");
    }
    assert!(finished > 0, "{MOST_POLLS} polls are enough to finish, or this test has not seen the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_duplicate_leaves_a_healthy_pool() {
    let world = World::with_connections(1).await;
    assert!(handlers::record(&world.pool, "1").await.unwrap().is_processed());
    for polls in 1..=30 {
        drop_after(polls, handlers::record(&world.pool, "1")).await;
        plain_use_is_sound(&world, &format!("duplicate-{polls}")).await;
        let next = format!("next-{polls}");
        assert!(handlers::record(&world.pool, &next).await.unwrap().is_processed(), "after {polls} polls");
        assert_eq!(world.effects_of(&next).await, 1, "after {polls} polls");
    }
    assert_eq!(world.effects_of("1").await, 1);
}

#[tokio::test]
async fn a_handler_dropped_inside_its_body_leaves_nothing() {
    let world = World::with_connections(1).await;
    let hanging = handlers::scripted(&world.pool, "1", &[Step::Effect, Step::Hang]);
    assert!(tokio::time::timeout(Duration::from_millis(300), hanging).await.is_err());
    assert!(handlers::scripted(&world.pool, "1", &[Step::Effect]).await.unwrap().is_processed());
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
}

#[tokio::test]
async fn a_handler_dropped_after_its_transaction_was_lost_leaves_a_sound_connection() {
    let world = World::with_connections(1).await;
    for round in 0..3 {
        let hanging = handlers::scripted(&world.pool, "1", &[Step::Effect, Step::Try("ROLLBACK"), Step::Hang]);
        assert!(tokio::time::timeout(Duration::from_millis(300), hanging).await.is_err());
        plain_use_is_sound(&world, &format!("round-{round}")).await;
        let next = format!("next-{round}");
        assert!(handlers::record(&world.pool, &next).await.unwrap().is_processed());
        assert_eq!(world.effects_of(&next).await, 1);
    }
}

#[tokio::test]
async fn a_panic_leaves_neither_claim_nor_effect_and_a_healthy_pool() {
    let world = World::with_connections(1).await;
    let pool = world.pool.clone();
    let panicked =
        tokio::spawn(async move { handlers::scripted(&pool, "1", &[Step::Effect, Step::Panic]).await }).await;
    assert!(panicked.unwrap_err().is_panic());
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    assert!(handlers::scripted(&world.pool, "1", &[Step::Effect]).await.unwrap().is_processed());
    assert_eq!((world.effects().await, world.claims().await), (1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_joined_handler_undoes_itself_and_nothing_of_its_caller() {
    let world = World::with_connections(1).await;
    let mut finished = 0;
    for polls in 1..=MOST_POLLS {
        let id = format!("joined-{polls}");
        let mut tx = world.pool.begin().await.unwrap();
        handlers::effect(&mut tx, &format!("before-{polls}")).await.unwrap();
        finished += usize::from(drop_after(polls, handlers::record(&mut tx, &id)).await.is_some());
        if crate::LOSES_ITS_PLACE_WHEN_DROPPED && handlers::effect(&mut tx, &format!("after-{polls}")).await.is_err() {
            // sqlx has lost its place in the protocol: the caller is told, and nothing of either stays.
            drop(tx);
            world.pool.acquire().await.unwrap().close().await.ok();
            assert_eq!(world.effects_of(&format!("before-{polls}")).await, 0);
            assert_eq!(world.effects_of(&id).await, 0);
            continue;
        }
        if !crate::LOSES_ITS_PLACE_WHEN_DROPPED {
            handlers::effect(&mut tx, &format!("after-{polls}")).await.unwrap();
        }
        commit(tx).await.unwrap();
        assert_eq!(world.effects_of(&format!("before-{polls}")).await, 1, "after {polls} polls");
        assert_eq!(world.effects_of(&format!("after-{polls}")).await, 1, "after {polls} polls");
        let stayed = world.effects_of(&id).await;
        let redelivered = handlers::record(&world.pool, &id).await.expect("no error");
        assert_eq!(redelivered.is_duplicate(), stayed == 1, "after {polls} polls");
        assert_eq!(world.effects_of(&id).await, 1, "after {polls} polls");
    }
    assert!(finished > 0, "{MOST_POLLS} polls are enough to finish, or this test has not seen the end");
}

#[tokio::test]
async fn a_joined_handler_dropped_inside_its_body_undoes_itself_and_nothing_of_its_caller() {
    let world = World::with_connections(1).await;
    let mut tx = world.pool.begin().await.unwrap();
    handlers::effect(&mut tx, "before").await.unwrap();
    let hanging = handlers::scripted(&mut tx, "1", &[Step::Effect, Step::Hang]);
    assert!(tokio::time::timeout(Duration::from_millis(300), hanging).await.is_err());
    handlers::effect(&mut tx, "after").await.unwrap();
    commit(tx).await.unwrap();
    assert_eq!((world.effects_of("before").await, world.effects_of("after").await), (1, 1));
    assert_eq!((world.effects_of("1").await, world.claims().await), (0, 0));
}
