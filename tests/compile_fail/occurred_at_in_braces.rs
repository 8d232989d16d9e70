//! A timestamp is a field, not a template.

use idempotent_runtime::idempotent;
use sqlx::SqliteTransaction;

struct Event {
    id: String,
    order: u64,
    created: std::time::SystemTime,
}

#[idempotent(key = "{event.id}", occurred_at = "{event.created}")]
async fn handler(_tx: &mut SqliteTransaction<'_>, event: &Event) -> sqlx::Result<()> {
    Ok(())
}

fn main() {}
