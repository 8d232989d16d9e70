//! Connections and transactions that the caller has kept: what a dropped, panicked or lost handler leaves on them.

use std::time::Duration;

use idempotent_runtime::{Error, commit};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _};

use crate::handlers::{self, Step};
use crate::harness::{World, drop_after};
use crate::{Connection, LOSES_ITS_PLACE_WHEN_DROPPED};

const SHORT: Duration = Duration::from_millis(200);
const HANGS: [Step<'static>; 2] = [Step::Effect, Step::Hang];

/// A statement outside handlers commits itself.
async fn commits_itself(world: &World, connection: &mut Connection, tag: &str) {
    let insert = format!("INSERT INTO effects (id) VALUES ('{tag}')");
    connection.execute(AssertSqlSafe(insert)).await.expect(tag);
    assert_eq!(world.effects_of(tag).await, 1, "{tag}");
}

#[tokio::test]
async fn a_handler_dropped_in_its_body_leaves_no_setting_on_a_pools_connection() {
    let world = World::with_connections(1).await;
    for round in 0..3 {
        let mut leased = world.pool.acquire().await.unwrap();
        let id = format!("round-{round}");
        assert!(tokio::time::timeout(SHORT, handlers::scripted(&mut leased, &id, &HANGS)).await.is_err());
        commits_itself(&world, &mut leased, &format!("kept-{round}")).await;
        drop(leased);
        let mut next = world.pool.acquire().await.unwrap();
        commits_itself(&world, &mut next, &format!("plain-{round}")).await;
        assert!(handlers::scripted(&mut next, &id, &[Step::Effect]).await.unwrap().is_processed());
        assert_eq!(world.effects_of(&id).await, 1);
    }
}

#[tokio::test]
async fn a_handler_dropped_in_its_body_leaves_no_setting_on_a_bare_connection() {
    let world = World::with_connections(2).await;
    let mut bare: Connection = world.pool.acquire().await.unwrap().detach();
    for round in 0..3 {
        let id = format!("round-{round}");
        assert!(tokio::time::timeout(SHORT, handlers::scripted(&mut bare, &id, &HANGS)).await.is_err());
        commits_itself(&world, &mut bare, &format!("plain-{round}")).await;
        assert!(handlers::scripted(&mut bare, &id, &[Step::Effect]).await.unwrap().is_processed());
        assert_eq!(world.effects_of(&id).await, 1);
    }
}

#[tokio::test]
async fn a_handler_that_lost_its_transaction_and_was_dropped_leaves_a_sound_bare_connection() {
    let world = World::with_connections(2).await;
    let mut bare: Connection = world.pool.acquire().await.unwrap().detach();
    let script = [Step::Effect, Step::Try("ROLLBACK"), Step::Hang];
    for round in 0..3 {
        assert!(tokio::time::timeout(SHORT, handlers::scripted(&mut bare, "1", &script)).await.is_err());
        let next = format!("next-{round}");
        assert!(handlers::record(&mut bare, &next).await.unwrap().is_processed());
        assert_eq!(world.effects_of(&next).await, 1, "processed means committed");
    }
}

/// The drop hits where a delivery waits longest: for a rival's claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_dropped_while_it_waits_for_a_rival_leaves_no_claim_behind() {
    let world = World::with_connections(4).await;
    let mut bare: Connection = world.pool.acquire().await.unwrap().detach();
    for round in 0..3 {
        let id = format!("round-{round}");
        let mut rival = world.pool.begin_with(crate::BEGIN_TO_WRITE).await.unwrap();
        assert!(handlers::record(&mut rival, &id).await.unwrap().is_processed());
        assert!(tokio::time::timeout(SHORT, handlers::record(&mut bare, &id)).await.is_err());
        rival.rollback().await.unwrap();
        assert!(handlers::record(&mut bare, &format!("other-{round}")).await.unwrap().is_processed());
        assert!(handlers::record(&mut bare, &id).await.unwrap().is_processed(), "the message is not lost");
        assert_eq!(world.effects_of(&id).await, 1);
    }
    assert_eq!(world.effects().await, world.claims().await);
}

/// sqlx 0.9.0 takes the drop of a nested begin for that of the whole transaction. The loss is reported, by handler or
/// commit, and the connection is sound afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_savepoint_of_the_bodys_own_that_is_dropped_in_flight_loses_no_message() {
    for polls in 1..=6 {
        let world = World::with_connections(1).await;
        let own = handlers::scripted(&world.pool, "own", &[Step::Effect, Step::DropNested(polls)]).await;
        let (effects, claims) = (world.effects_of("own").await, world.claims().await);
        assert_eq!((effects, claims), if own.is_ok() { (1, 1) } else { (0, 0) }, "after {polls} polls: {own:?}");

        let mut tx = world.pool.begin().await.unwrap();
        handlers::effect(&mut tx, "before").await.unwrap();
        let joined = handlers::scripted(&mut tx, "joined", &[Step::Effect, Step::DropNested(polls)]).await;
        let committed = commit(tx).await;
        let before = world.effects_of("before").await;
        assert_eq!(before == 1, committed.is_ok(), "after {polls} polls: {joined:?}, {committed:?}");
        assert_eq!(world.effects_of("joined").await, i64::from(joined.is_ok() && committed.is_ok()));

        let next = handlers::record(&world.pool, "next").await.expect("the connection is sound");
        assert!(next.is_processed());
        let mut plain = world.pool.acquire().await.unwrap();
        commits_itself(&world, &mut plain, "plain").await;
    }
}

#[tokio::test]
async fn a_duplicate_on_a_kept_connection_leaves_it_sound() {
    let world = World::with_connections(1).await;
    let mut leased = world.pool.acquire().await.unwrap();
    assert!(handlers::record(&mut leased, "1").await.unwrap().is_processed());
    for round in 0..5 {
        assert!(handlers::record(&mut leased, "1").await.unwrap().is_duplicate());
        commits_itself(&world, &mut leased, &format!("plain-{round}")).await;
    }
    assert_eq!(world.effects_of("1").await, 1);
}

#[tokio::test]
async fn commit_takes_savepoints_too() {
    let world = World::with_connections(1).await;
    let mut tx = world.pool.begin().await.unwrap();
    let mut savepoint = tx.begin().await.unwrap();
    assert!(handlers::record(&mut savepoint, "1").await.unwrap().is_processed());
    commit(savepoint).await.unwrap();
    assert_eq!(world.effects().await, 0, "the outer transaction is not committed by it");
    commit(tx).await.unwrap();
    assert_eq!(world.effects().await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_on_a_pools_connection_that_is_dropped_at_any_moment_leaves_it_sound() {
    let world = World::with_connections(1).await;
    for polls in 1..=30 {
        for steps in [&[Step::Effect][..], &[Step::Effect, Step::Fail]] {
            let id = format!("{polls}-{}", steps.len());
            let mut leased = world.pool.acquire().await.unwrap();
            drop(drop_after(polls, handlers::scripted(&mut leased, &id, steps)).await);
            drop(leased);
            let mut next = world.pool.acquire().await.unwrap();
            commits_itself(&world, &mut next, &format!("plain-{id}")).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_joined_handler_that_loses_the_transaction_and_is_dropped_at_any_moment_leaves_a_sound_pool() {
    let world = World::with_connections(1).await;
    for polls in 1..=20 {
        let mut tx = world.pool.begin().await.unwrap();
        handlers::effect(&mut tx, &format!("before-{polls}")).await.unwrap();
        let script = [Step::Effect, Step::Try("ROLLBACK")];
        drop(drop_after(polls, handlers::scripted(&mut tx, &format!("lost-{polls}"), &script)).await);
        let after = handlers::effect(&mut tx, &format!("after-{polls}")).await;
        let committed = commit(tx).await;
        let [before, stayed] =
            [world.effects_of(&format!("before-{polls}")).await, world.effects_of(&format!("after-{polls}")).await];
        if committed.is_ok() {
            assert_eq!((before, stayed), (1, 1), "after {polls} polls: {after:?}");
        }
        let next = format!("next-{polls}");
        let mut plain = world.pool.acquire().await.unwrap();
        commits_itself(&world, &mut plain, &format!("plain-{polls}")).await;
        drop(plain);
        assert!(handlers::record(&world.pool, &next).await.expect("the pool is sound").is_processed());
        assert_eq!(world.effects_of(&next).await, 1, "after {polls} polls");
    }
}

#[tokio::test]
async fn a_joined_handler_that_loses_the_transaction_and_is_dropped_is_not_committed_around() {
    let world = World::with_connections(1).await;
    let mut tx = world.pool.begin().await.unwrap();
    handlers::effect(&mut tx, "before").await.unwrap();
    let script = [Step::Effect, Step::Try("ROLLBACK"), Step::Hang];
    assert!(tokio::time::timeout(SHORT, handlers::scripted(&mut tx, "1", &script)).await.is_err());
    let after = handlers::effect(&mut tx, "after").await;
    let committed = commit(tx).await;
    assert!(committed.is_err() || LOSES_ITS_PLACE_WHEN_DROPPED, "{after:?}, {committed:?}");
    assert_eq!((world.effects_of("before").await, world.effects_of("1").await), (0, 0));
    if let Err(error) = committed {
        assert!(matches!(error, Error::TransactionLost(_) | Error::Database(_) | Error::CommitUnknown(_)), "{error:?}");
    }
    assert!(handlers::record(&world.pool, "next").await.unwrap().is_processed());
    let mut plain = world.pool.acquire().await.unwrap();
    commits_itself(&world, &mut plain, "plain").await;
}
