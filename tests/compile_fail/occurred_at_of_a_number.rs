//! A number does not say whether it counts seconds or milliseconds.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
    order: u64,
    created: i64,
}

#[idempotent(key = "{event.id}", occurred_at = "event.created")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
