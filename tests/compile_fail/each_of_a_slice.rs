//! The body gets fewer items than the caller passes.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}", each = "event in events")]
async fn handler(_tx: &mut SqliteTransaction<'_>, events: &[Event]) -> sqlx::Result<()> {
    let _ = events;
    Ok(())
}

fn main() {}
