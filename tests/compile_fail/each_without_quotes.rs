//! `each` is text.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}", each = event in events)]
async fn handler(_tx: &mut SqliteTransaction<'_>, events: Vec<Event>) -> sqlx::Result<()> {
    drop(events);
    Ok(())
}

fn main() {}
