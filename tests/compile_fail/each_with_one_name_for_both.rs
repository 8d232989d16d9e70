//! The item has a name of its own.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{events.id}", each = "events in events")]
async fn handler(_tx: &mut SqliteTransaction<'_>, events: Vec<Event>) -> sqlx::Result<()> {
    drop(events);
    Ok(())
}

fn main() {}
