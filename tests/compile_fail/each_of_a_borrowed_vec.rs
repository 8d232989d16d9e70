//! The fresh items are taken out of the batch.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}", each = "event in events")]
async fn handler(_tx: &mut SqliteTransaction<'_>, events: &mut Vec<Event>) -> sqlx::Result<()> {
    let _ = events;
    Ok(())
}

fn main() {}
