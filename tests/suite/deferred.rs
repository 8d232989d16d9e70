//! A violation that only COMMIT reports (G4). MySQL and MariaDB have no deferred constraints.

use idempotent_runtime::Error;

use crate::handlers;
use crate::harness::World;

#[tokio::test]
async fn an_error_that_commit_reports_is_known_and_leaves_nothing() {
    let world = World::with_connections(1).await;
    let steps = crate::deferred_violation(&world).await;
    let error = handlers::scripted(&world.pool, "1", &steps).await.unwrap_err();
    assert!(matches!(&error, Error::Database(sqlx::Error::Database(_))), "{error:?}");
    assert!(!error.is_transient(), "a constraint is violated again next time: {error:?}");
    assert_eq!((world.effects().await, world.claims().await), (0, 0));
    assert!(handlers::record(&world.pool, "other").await.unwrap().is_processed());
}
