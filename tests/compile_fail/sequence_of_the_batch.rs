//! Whose order it is, each item says.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
    number: i64,
}

#[idempotent(sequence(entity = "{events.id}", number = "events.number"), each = "event in events")]
async fn handler(_tx: &mut SqliteTransaction<'_>, events: Vec<Event>) -> sqlx::Result<()> {
    drop(events);
    Ok(())
}

fn main() {}
