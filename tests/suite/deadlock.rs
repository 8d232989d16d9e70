//! A deadlock whose error the body ignores before it writes more and returns `Ok` (G2, D6).

use idempotent_runtime::Error;

use crate::handlers::{self, Step};
use crate::harness::World;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_victim_that_ignores_its_error_and_writes_on_is_never_processed() {
    let world = World::with_connections(4).await;
    world.run("CREATE TABLE accounts (id INTEGER NOT NULL PRIMARY KEY, cents INTEGER NOT NULL)").await;
    world.run("INSERT INTO accounts VALUES (1, 0), (2, 0)").await;
    let (one, two) =
        ("UPDATE accounts SET cents = cents + 1 WHERE id = 1", "UPDATE accounts SET cents = cents + 1 WHERE id = 2");
    let mut lost = 0;
    for round in 0..5 {
        let [a, b] = [format!("a-{round}"), format!("b-{round}")];
        let first = [Step::Run(one), Step::Run(crate::SLEEP), Step::Try(two), Step::Try("SELECT 1"), Step::Effect];
        let second = [Step::Run(two), Step::Run(crate::SLEEP), Step::Try(one), Step::Try("SELECT 1"), Step::Effect];
        let outcomes =
            tokio::join!(handlers::scripted(&world.pool, &a, &first), handlers::scripted(&world.pool, &b, &second));
        for (id, outcome) in [(&a, outcomes.0), (&b, outcomes.1)] {
            match outcome {
                Ok(outcome) => assert!(outcome.is_processed()),
                Err(Error::TransactionLost(gone)) => {
                    assert!(!gone.claim_kept());
                    assert_eq!(world.effects_of(id).await, 0, "what the victim wrote afterwards does not stay");
                    lost += 1;
                }
                // On PostgreSQL the effect itself fails in the aborted transaction, and the body returns that.
                Err(error) if !crate::ERROR_ABORTS => panic!("{error:?}"),
                Err(_) => {
                    assert_eq!(world.effects_of(id).await, 0);
                    lost += 1;
                }
            }
            let _ = handlers::scripted(&world.pool, id, &[Step::Effect]).await.unwrap();
            assert_eq!(world.effects_of(id).await, 1, "redelivering settles it");
        }
    }
    assert_eq!(lost, 5, "each round has one victim");
}
