//! A batch is an argument like any other.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
}

#[idempotent(key = "{event.id}", retry = 3, each = "event in events")]
async fn handler(_tx: &mut SqliteTransaction<'_>, events: Vec<Event>) -> sqlx::Result<()> {
    drop(events);
    Ok(())
}

fn main() {}
