//! Items of one batch differ in their keys.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{tenant}", each = "event in events")]
async fn handler(_tx: &mut SqliteTransaction<'_>, events: Vec<Event>, tenant: &str) -> sqlx::Result<()> {
    drop(events);
    Ok(())
}

fn main() {}
