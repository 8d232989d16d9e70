//! One effect under any number of deliveries at once, whatever the isolation (G1, D3, D6, D9).

use std::time::Duration;

use idempotent_runtime::Outcome;
use tokio::task::JoinSet;

use crate::handlers::{self, Step};
use crate::harness::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixty_four_deliveries_at_once_have_one_effect() {
    let world = World::with_connections(16).await;
    for round in 0..5 {
        let mut deliveries = JoinSet::new();
        for _ in 0..64 {
            let pool = world.pool.clone();
            deliveries.spawn(async move { handlers::record(&pool, &format!("round-{round}")).await });
        }
        let outcomes: Vec<_> =
            deliveries.join_all().await.into_iter().map(|outcome| outcome.expect("no error")).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_processed()).count(), 1);
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_duplicate()).count(), 63);
        assert_eq!(world.effects_of(&format!("round-{round}")).await, 1);
    }
}

/// The rival that waits for the claim does the work if the first one fails.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_three_deliveries_of_which_the_first_fails_exactly_one_of_the_others_runs() {
    let world = World::new().await;
    for round in 0..10 {
        let id = format!("round-{round}");
        let mut first = world.pool.begin().await.unwrap();
        assert!(handlers::record(&mut first, &id).await.unwrap().is_processed());
        let mut waiting = JoinSet::new();
        for _ in 0..2 {
            let (pool, id) = (world.pool.clone(), id.clone());
            waiting.spawn(async move { handlers::record(&pool, &id).await });
        }
        tokio::time::sleep(Duration::from_millis(100)).await; // so that both wait
        first.rollback().await.unwrap();
        let outcomes: Vec<_> = waiting.join_all().await.into_iter().map(|outcome| outcome.expect("no error")).collect();
        assert_eq!(outcomes.iter().filter(|outcome| outcome.is_processed()).count(), 1, "{outcomes:?}");
        assert_eq!(world.effects_of(&id).await, 1);
    }
}

/// Different messages do not wait for each other's bodies, except on SQLite, which has one writer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_messages_at_once_are_all_processed() {
    let world = World::with_connections(8).await;
    let mut deliveries = JoinSet::new();
    for message in 0..200 {
        let pool = world.pool.clone();
        deliveries.spawn(async move { handlers::record(&pool, &format!("message-{}", message % 100)).await });
    }
    let outcomes: Vec<_> = deliveries.join_all().await.into_iter().map(|outcome| outcome.expect("no error")).collect();
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_processed()).count(), 100);
    assert_eq!((world.effects().await, world.claims().await), (100, 100));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_deliveries_at_once_under_every_isolation_level() {
    for level in crate::ISOLATION_LEVELS {
        let world = World::not_migrated(1).await;
        idempotent_runtime::migrate(&world.pool).await.unwrap();
        world.run("CREATE TABLE effects (id VARCHAR(100) NOT NULL)").await;
        let pool = crate::pool_with_isolation(&world.fresh, level).await;
        for round in 0..10 {
            let mut deliveries = JoinSet::new();
            for _ in 0..4 {
                let pool = pool.clone();
                deliveries.spawn(async move { handlers::record(&pool, &format!("round-{round}")).await });
            }
            let outcomes: Vec<_> =
                deliveries.join_all().await.into_iter().map(|outcome| outcome.expect("no error")).collect();
            let processed = outcomes.iter().filter(|outcome| matches!(outcome, Outcome::Processed(()))).count();
            assert_eq!(processed, 1, "{level}");
        }
        assert_eq!((world.effects().await, world.claims().await), (10, 10), "{level}");
    }
}

/// A caller's snapshot that is older than the claim must neither miss it nor end in a loop.
#[tokio::test]
async fn a_claim_that_is_newer_than_the_callers_snapshot_is_seen() {
    for level in crate::ISOLATION_LEVELS {
        let world = World::new().await;
        if let Some(sql) = crate::READERS_BESIDE_WRITERS {
            world.run(sql).await;
        }
        let pool = crate::pool_with_isolation(&world.fresh, level).await;
        let mut tx = pool.begin().await.unwrap();
        let _: i64 = sqlx::query_scalar("SELECT count(*) FROM singles").fetch_one(&mut *tx).await.unwrap();
        assert!(handlers::record(&world.pool, "1").await.unwrap().is_processed());
        match handlers::record(&mut tx, "1").await {
            Ok(outcome) => assert!(outcome.is_duplicate(), "{level}"),
            Err(error) => {
                let error = idempotent_runtime::Error::from(error);
                assert!(error.is_transient(), "{level}: {error:?}");
            }
        }
        drop(tx);
        assert_eq!(world.effects().await, 1, "{level}");
    }
}

#[tokio::test]
async fn a_body_that_reads_first_and_writes_later_waits_for_its_rival() {
    let world = World::new().await;
    let script = [Step::Run("SELECT count(*) FROM effects"), Step::Effect];
    let mut deliveries = JoinSet::new();
    for message in 0..20 {
        let pool = world.pool.clone();
        deliveries.spawn(async move { handlers::scripted(&pool, &format!("message-{message}"), &script).await });
    }
    assert!(deliveries.join_all().await.into_iter().all(|outcome| outcome.expect("no error").is_processed()));
    assert_eq!(world.effects().await, 20);
}
