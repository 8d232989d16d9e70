//! A template could mean either.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}", each = "event in events")]
async fn handler(_tx: &mut SqliteTransaction<'_>, events: Vec<Event>, event: &str) -> sqlx::Result<()> {
    drop(events);
    let _ = event;
    Ok(())
}

fn main() {}
